"""Evaluates rules of the original client like those of Stepwatch."""

from __future__ import annotations

import copy
import inspect
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from hook_layer.storage.base import StorageError
from rule_runtime.custom_rules.errors import RuleEvaluationConditionMet
from rule_runtime.custom_rules.json_values import UnkeepableError
from rule_runtime.custom_rules.rule_attributes import KeptAttributes
from rule_runtime.custom_rules.smdebug_rule import condition_holds
from rule_runtime.custom_rules.trial_at_step import TrialAtStep, other_trial, run_of
from rule_runtime.engine.failure import UNAVAILABLE, failure_reason
from rule_runtime.engine.outcome import (
    Evidence,
    Failed,
    IssueFound,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import Memory, Rule

if TYPE_CHECKING:
    from rule_runtime.custom_rules.smdebug_rule import Rule as OriginalRule
    from rule_runtime.trial.step_view import StepView
    from rule_runtime.trial.trial import Trial

__all__ = ["SmdebugRule"]

_MAX_RUNS: Final = 8
"""Maximum number of runs whose trials all rules of a process keep in memory."""
_ATTRIBUTES: Final = "attributes"
_FAILURE: Final = "failure"
_STEP: Final = "step"


class _Made(NamedTuple):
    """An object of the class, and the storage of its attributes."""

    rule: OriginalRule
    attributes: KeptAttributes


class _JudgedRun:
    """The state of one run in this process."""

    def __init__(self, trial: TrialAtStep) -> None:
        self.trial = trial
        self.others: list[Trial] = []
        self.made: _Made | None = None

    def look_at_others(self, step: StepView, roots: Sequence[str]) -> None:
        """Open the other trials, or look for their new files."""
        for trial in self.others:
            if not trial.loaded_all_steps:
                trial.refresh()
        self.others += [other_trial(step, root) for root in roots[len(self.others) :]]


class SmdebugRule(Rule):
    """Evaluates steps with a class written for the original client.

    The class is constructed with the trial as of the first evaluated step. Between two steps its
    attributes are stored as JSON. So the result does not depend on the number of calls or
    processes. An attribute that cannot be stored ends the evaluation with an error that names it.

    Args:
        rule_class: The class.
        arguments: Arguments of its constructor besides `base_trial` and `other_trials`.
        other_trials: Paths, URIs or job names for its argument `other_trials`; None if it has none.

    Attributes:
        rule_class: The class.
    """

    # Declared as class variables, because they are not parameters of the rule.
    rule_class: ClassVar[type[Any]]
    _arguments: ClassVar[Mapping[str, Any]]
    _other_trials: ClassVar[Sequence[str] | None]

    def __init__(
        self,
        rule_class: type[OriginalRule],
        arguments: Mapping[str, Any] | None = None,
        *,
        other_trials: Sequence[str] | None = None,
    ) -> None:
        object.__setattr__(self, "rule_class", rule_class)
        object.__setattr__(self, "_arguments", dict(arguments or {}))
        object.__setattr__(self, "_other_trials", other_trials)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the class, and the names of other trials."""
        others = enumerate(self._other_trials or ())
        return {**self._arguments, **{f"other_trial_{i}": name for i, name in others}}

    def __repr__(self) -> str:
        return f"<SmdebugRule {self.rule_class.__name__}>"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate one step with the class."""
        if _FAILURE in memory:
            return Failed(memory[_FAILURE])
        made: _Made | None = None
        try:
            made = self._object(step, memory)
            outcome = self._judge(made.rule, step)
        except StorageError:
            raise
        except UNAVAILABLE as error:
            outcome = NotEvaluated(str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anybody's code
            return Failed(failure_reason(error, self.rule_class))
        return outcome if made is None else self._kept(made.attributes, memory, outcome)

    def _judge(self, rule: OriginalRule, step: StepView) -> Outcome:
        try:
            holds = condition_holds(rule, step.step)
        except RuleEvaluationConditionMet:
            holds = True
        return IssueFound(self._evidence(rule, step)) if holds else Passed()

    def _kept(self, attributes: KeptAttributes, memory: Memory, outcome: Outcome) -> Outcome:
        try:
            memory[_ATTRIBUTES] = attributes.take()
        except UnkeepableError as error:
            reason = f"{self.rule_class.__name__}: {error}"
            if not isinstance(outcome, IssueFound):
                return Failed(reason)
            memory[_FAILURE] = reason  # the finding counts; there are no further steps
        return outcome

    def _object(self, step: StepView, memory: Memory) -> _Made:
        """Return the object from the memory, with its trials at the step."""
        key = (self, *run_of(step))
        judged = _runs.pop(key, None)
        if judged is None or judged.trial.step > step.step:
            judged = _JudgedRun(TrialAtStep(step))
        elif judged.trial.step < step.step:
            judged.trial.go_to(step, is_next=judged.trial.step == memory.get(_STEP))
        memory[_STEP] = step.step
        _runs[key] = judged
        if len(_runs) > _MAX_RUNS:
            _runs.popitem(last=False)
        judged.look_at_others(step, self._other_trials or ())
        kept = memory.get(_ATTRIBUTES)
        if kept is None or judged.made is None:
            judged.made = None
            judged.made = self._make(judged)
        if kept is not None:
            judged.made.attributes.put_back(kept)
        return judged.made

    def _make(self, judged: _JudgedRun) -> _Made:
        arguments = copy.deepcopy(dict(self._arguments))  # a list may grow
        if self._other_trials is not None:
            arguments["other_trials"] = judged.others
        make: Any = self.rule_class
        rule: OriginalRule = make(judged.trial, **arguments)
        if "trials" not in vars(rule):
            name = self.rule_class.__name__
            raise TypeError(f"{name}.__init__ must call super().__init__(base_trial)")
        return _Made(rule, KeptAttributes(rule))

    def _evidence(self, rule: OriginalRule, step: StepView) -> Evidence:
        name = self.rule_class.__name__
        required = sorted(rule.req_tensors.get_names())
        tensor = required[0] if len(required) == 1 else ""
        about = inspect.cleandoc(self.rule_class.__doc__ or "").partition("\n")[0]
        return Evidence(
            step=step.step,
            mode=step.mode.name,
            worker=step.workers[0] if len(step.workers) == 1 else f"{len(step.workers)} workers",
            tensor=tensor,
            measure="invoke_at_step",
            value=math.nan,
            threshold=math.nan,
            sentence=f"{tensor or name}: {name}.invoke_at_step({step.step}) is true",
            remedy=f"{name}: {about}" if about else f"Read the source of {name}.",
        )


_runs: Final[OrderedDict[tuple[SmdebugRule, str, str | None], _JudgedRun]] = OrderedDict()
