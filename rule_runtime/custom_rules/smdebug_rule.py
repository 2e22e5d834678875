"""`Rule` and `invoke_rule` as the original client has them, over trials of ours.

`SmdebugRule` in `smdebug_adapter.py` evaluates such a rule wherever ours are evaluated.
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
    """A condition that is looked for at every step of a trial; subclass it.

    Args:
        base_trial: The trial that is judged.
        action_str: JSON of the actions that are asked for when the condition holds.
        other_trials: Further trials that the rule looks at.

    Attributes:
        base_trial: The trial that is judged.
        other_trials: The further trials, None if there are none.
        trials: All of them, the judged one first.
        req_tensors: What `set_required_tensors` declares.
        rule_name: Name of the class.
        report: For the subclass to fill.
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
        """Declare in `req_tensors` what `invoke_at_step` will look at."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Return whether the condition holds at a step."""

    def invoke(self, step: int) -> None:
        """Wait for a step and judge it.

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
    """Let a rule declare what it needs for a step, see that it is there, and judge the step."""
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
    """Judge the global steps of a rule's trial one after the other, waiting for those to come.

    Steps that were not saved, or lack what the rule needs, are skipped.

    Args:
        rule_obj: The rule.
        start_step: The first step.
        end_step: The step before which it ends; None to go on until the training ends.
        raise_eval_cond: True to end when the condition holds, by the exception that says so.

    Raises:
        NoMoreData: When the training has ended, if no `end_step` came before.
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
