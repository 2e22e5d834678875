"""Feeding steps to a rule, one after the other, and keeping what it answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hook_layer.storage.base import ObjectNotFoundError, StorageError
from rule_runtime.engine.failure import (
    UNAVAILABLE,
    failure_reason,
    located_in_check,
    wrong_answer,
)
from rule_runtime.engine.filled_evidence import filled
from rule_runtime.engine.outcome import (
    Evidence,
    Failed,
    IssueFound,
    Missing,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.reason_tally import counted_in
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import Counts, EvaluationState

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["Evaluation"]

_logger = logging.getLogger(__name__)


class Evaluation:
    """One rule's way through the steps of a run.

    A rule never stops the others. What was not saved, or is damaged, makes the step not evaluated;
    any other exception inside the rule ends its evaluation, with the exception and its line as the
    reason, and leaves the memory as it was before. Only a failing storage is passed on, because the
    same step can be evaluated when it works again.

    Attributes:
        memory: The rule's memory after the last step.
        evidence: What the finding rests on, None as long as there is none.
        evaluated: Number of steps that the rule judged.
        not_evaluated: Number of steps that it could not judge.
        not_applicable: Number of steps that are none of those that it judges.
        last_reason: Why the last of those that it could not judge could not be judged; without any,
            why the last one was not applicable.
        reasons: Why steps could not be judged, and how many each.
        failure: Why the rule is shown no further step; empty as long as it works.
    """

    def __init__(
        self, rule: Rule, memory: Mapping[str, Any], evidence: Evidence | None, counts: Counts
    ) -> None:
        self._rule = rule
        self.memory: dict[str, Any] = _json_copy(memory)
        self.evidence = evidence
        self.evaluated = counts.evaluated
        self.not_evaluated = counts.not_evaluated
        self.not_applicable = counts.not_applicable
        self.last_reason = counts.last_reason
        self.reasons = counts.reasons
        self.failure = counts.failure

    @classmethod
    def fresh(cls, rule: Rule) -> Evaluation:
        """Return the evaluation of a run from its beginning.

        Args:
            rule: The rule.
        """
        return cls(rule, {}, None, Counts())

    @classmethod
    def resume(cls, rule: Rule, state: EvaluationState) -> Evaluation:
        """Return the evaluation that a state was taken from.

        Args:
            rule: The rule, with the same parameters.
            state: The state.
        """
        return cls(rule, state.memory, state.evidence, state.counts)

    def feed(self, step: StepView) -> Outcome:
        """Let the rule judge one step, and keep its answer.

        Args:
            step: The step; must come after all that were fed before.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        if self.failure:
            return Failed(self.failure)
        outcome = self._check(step)
        if isinstance(outcome, NotApplicable):
            self.not_applicable += 1
            if not self.not_evaluated:
                self.last_reason = outcome.reason
            return outcome
        if isinstance(outcome, (NotEvaluated, Failed)):
            self._count(outcome.reason, step.mode.name)
            if isinstance(outcome, Failed):
                name = self._rule.judging_class().__name__
                _logger.warning("%s failed at step %d: %s", name, step.step, outcome.reason)
                self.failure = f"{outcome.reason}, at step {step.step}"
            return outcome
        self.evaluated += 1
        if isinstance(outcome, IssueFound):
            seen = self.evidence
            found = replace(outcome.evidence, mode_step=step.mode_step)
            self.evidence = found if seen is None else seen.seen_again(step.step)
        return outcome

    def skip(self, reason: str) -> None:
        """Count a step that could not even be shown to the rule.

        Args:
            reason: Why.
        """
        if not self.failure:
            self._count(reason, "")

    def counts(self, unreadable: int, last_problem: str) -> Counts:
        """Return the counts so far.

        Args:
            unreadable: Number of index files that could not be parsed.
            last_problem: What was wrong with the last of them.
        """
        return Counts(
            evaluated=self.evaluated,
            not_evaluated=self.not_evaluated,
            not_applicable=self.not_applicable,
            last_reason=self.last_reason,
            unreadable=unreadable,
            last_problem=last_problem,
            failure=self.failure,
            reasons=self.reasons,
        )

    def _count(self, reason: str, mode: str) -> None:
        self.not_evaluated += 1
        self.last_reason = reason
        self.reasons = counted_in(self.reasons, reason, mode)

    def _check(self, step: StepView) -> Outcome:
        memory = _json_copy(self.memory)
        judging = self._rule.judging_class()
        name = judging.__name__
        try:
            outcome: object = self._rule.check(step, memory)
        except Missing as missing:
            outcome = NotEvaluated(str(missing))
        except StorageError as error:
            if not isinstance(error, ObjectNotFoundError):
                raise
            return NotEvaluated(str(error))
        except UNAVAILABLE as error:
            return NotEvaluated(str(error))
        except (Exception, SystemExit) as error:  # rules may be anybody's code
            _logger.debug("%s failed at step %d", name, step.step, exc_info=True)
            return Failed(failure_reason(error, judging))
        if not isinstance(outcome, (Passed, IssueFound, NotEvaluated, Failed)):
            again = partial(self._rule.check, step, _json_copy(self.memory))
            return Failed(wrong_answer(outcome, judging, again))
        if isinstance(outcome, IssueFound):
            outcome = IssueFound(filled(outcome.evidence, judging, step))
        if not isinstance(outcome, Failed):
            try:
                self.memory = _json_copy(memory)
            except (TypeError, RecursionError) as error:
                text = f"{name}.check put into memory what cannot be kept: {error}"
                return Failed(located_in_check(text, judging))
        return outcome


def _json_copy(value: Any) -> Any:
    """Return a deep copy that holds what JSON can hold only, numpy's numbers as Python's.

    Raises:
        TypeError: If there is anything else in it.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list and _PLAIN.issuperset(map(type, value)):  # long ones hold numbers only
        return value.copy()
    if kind is dict and not value:
        return {}
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise TypeError(f"a memory's keys must be strings, not {key!r}")
        return {key: _json_copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_copy(item) for item in value]
    if isinstance(value, np.generic) and type(value.item()) in _PLAIN:
        return value.item()
    raise TypeError(f"a memory holds what JSON can hold, not a {kind.__name__}")


_PLAIN = frozenset({str, int, float, bool, type(None)})
