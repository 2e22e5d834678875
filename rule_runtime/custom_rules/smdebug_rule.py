"""The original client's `Rule` and `invoke_rule` for trials of Stepwatch.

`SmdebugRule` in `smdebug_adapter.py` evaluates such a rule like those of Stepwatch.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rule_runtime.custom_rules.errors import NoMoreProfilerData, RuleEvaluationConditionMet
from rule_runtime.custom_rules.required_tensors import RequiredTensors
from rule_runtime.custom_rules.rule_actions import Actions
from rule_runtime.trial.errors import StepUnavailable, TensorUnavailable, TensorUnavailableForStep
from rule_runtime.trial.refreshing import no_refresh

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["Rule", "condition_holds", "invoke_rule"]

_logger = logging.getLogger("stepwatch")


class Rule(ABC):
    """A condition that is checked at every step of a trial; create a subclass.

    Args:
        base_trial: The trial to evaluate.
        action_str: JSON of the actions on a finding.
        other_trials: Further trials for the rule.

    Attributes:
        base_trial: The trial to evaluate.
        other_trials: The further trials; None if there are none.
        trials: All trials, `base_trial` first.
        req_tensors: The tensors declared in `set_required_tensors`.
        rule_name: Name of the class.
        report: For use by the subclass.
        logger: The log of this package.
    """

    def __init__(
        self,
        base_trial: Trial,
        action_str: str | None = "",
        other_trials: Iterable[Trial] | None = None,
    ) -> None:
        self.base_trial = base_trial
        self.other_trials = None if other_trials is None else list(other_trials)
        self.trials = [base_trial, *(self.other_trials or ())]
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.logger = _logger
        self.rule_name = type(self).__name__
        self._actions = Actions(action_str, rule_name=self.rule_name)
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }

    def set_required_tensors(self, step: int) -> None:  # noqa: B027 - most rules need none
        """Declare in `req_tensors` the tensors that `invoke_at_step` needs."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Return whether the condition holds at a step."""

    def invoke(self, step: int) -> None:
        """Wait for a step and evaluate it.

        Raises:
            RuleEvaluationConditionMet: If the condition holds.
            StepUnavailable: If the step was passed without being saved.
            NoMoreData: If the training ended before the step.
        """
        self.base_trial.wait_for_steps([step])
        if condition_holds(self, step):
            self._actions.invoke()
            raise RuleEvaluationConditionMet(self.rule_name, step)


def condition_holds(rule: Rule, step: int) -> bool:
    """Declare a rule's required tensors at a step, check that they exist, and evaluate the step."""
    with no_refresh(rule.trials):
        rule.req_tensors.clear()
        rule.set_required_tensors(step)
        rule.req_tensors.fetch()
        return bool(rule.invoke_at_step(step))


def invoke_rule(
    rule_obj: Rule,
    start_step: int | None = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,
) -> None:
    """Evaluate the global steps of a rule's trial in order, and wait for steps to come.

    Steps that were not saved, or lack required tensors, are skipped.

    Args:
        rule_obj: The rule.
        start_step: The first step.
        end_step: First step that is not evaluated; None to continue until the training ends.
        raise_eval_cond: True to raise an exception when the condition holds.

    Raises:
        NoMoreData: When the training has ended before `end_step`.
        RuleEvaluationConditionMet: If the condition holds and `raise_eval_cond` is True.
    """
    step = start_step or 0
    name = type(rule_obj).__name__
    _logger.info("Started execution of rule %s at step %d", name, step)
    while end_step is None or step < end_step:
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as error:
            _logger.debug("%s", error)
        except RuleEvaluationConditionMet as error:
            if raise_eval_cond:
                raise
            _logger.debug("%s", error)
            if error.end_of_rule:
                break
        except NoMoreProfilerData as error:
            _logger.info("%s", error)
            break
        step += 1
    _logger.info("Ended execution of rule %s at end_step %d", name, step - 1)
