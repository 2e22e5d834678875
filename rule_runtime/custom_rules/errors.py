"""Errors for rules of the original client, with the original's names and texts."""

from __future__ import annotations

from rule_runtime.trial.errors import TrialError

__all__ = [
    "InsufficientInformationForRuleInvocation",
    "NoMoreProfilerData",
    "RuleEvaluationConditionMet",
]


class RuleEvaluationConditionMet(TrialError):  # noqa: N818
    """The condition of a rule holds at a step."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(
            f"Evaluation of the rule {rule_name} at step {step} resulted in the condition being met"
        )
        self.rule_name = rule_name
        self.step = step
        self.end_of_rule = end_of_rule


class InsufficientInformationForRuleInvocation(TrialError):  # noqa: N818
    """A rule has no tensors or collections to evaluate."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(f"Insufficient information to invoke rule {rule_name}: {message}")
        self.rule_name = rule_name
        self.message = message


class NoMoreProfilerData(TrialError):  # noqa: N818
    """Training ended before a time; raised by rules for profiles, which Stepwatch lacks."""

    def __init__(self, timestamp: float) -> None:
        super().__init__(f"Looking for timestamp {timestamp} and reached end of training.")
        self.timestamp = timestamp
