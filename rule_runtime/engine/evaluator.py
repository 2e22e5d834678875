"""Feeds steps to a rule one by one, and keeps its outcomes."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hook_layer.storage.base import ObjectNotFoundError, StorageError
from rule_runtime.engine.counts import MAX_TEXT
from rule_runtime.engine.evidence import completed
from rule_runtime.engine.failure import UNAVAILABLE, failure_reason, located_in_check, wrong_outcome
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import (
    Failed,
    IssueFound,
    Missing,
    NotApplicable,
    NotEnough,
    NotEvaluated,
    Outcome,
    Passed,
    shortened,
)
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.selection import why_not_applicable
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.step_view import StepView

__all__ = ["Evaluation"]

_logger = logging.getLogger(__name__)


class Evaluation:
    """Feeds the steps of one run to one rule, and keeps its memory and outcomes.

    A step with missing or damaged data is not evaluated. Any other exception inside the rule ends
    its evaluation: the exception and its line become the failure, and the memory does not change.
    Only storage errors are raised, because the step can be evaluated later.

    Attributes:
        memory: The rule's memory after the last step.
        evidence: The evidence of its finding; None without a finding.
        counts: Counts of the steps.
    """

    def __init__(self, rule: Rule, state: EvaluationState) -> None:
        self._rule = rule
        self._needs = Needs()
        self.memory: dict[str, Any] = _json_copy(state.memory)
        self.evidence = state.evidence
        self.counts = state.counts

    @classmethod
    def fresh(cls, rule: Rule) -> Evaluation:
        """Return the evaluation of a run from its first step."""
        return cls(rule, EvaluationState.initial())

    @property
    def failure(self) -> str:
        """Why the rule gets no further step; empty while it works."""
        return self.counts.failure

    def feed(self, step: StepView) -> Outcome:
        """Evaluate one step, later than all before, and keep the outcome."""
        if self.failure:
            return Failed(self.failure)
        reason = why_not_applicable(self._rule, step)
        outcome = NotApplicable(reason) if reason else self._check(step)
        if isinstance(outcome, NotApplicable):
            self.counts = self.counts.with_not_applicable(outcome.reason)
        elif isinstance(outcome, NotEvaluated) and outcome.needs_more:
            self._count_data(outcome, step)
        elif isinstance(outcome, (NotEvaluated, Failed)):
            self.skip(outcome.reason, step.mode.name)
            if isinstance(outcome, Failed):
                name = type(self._rule).__name__
                _logger.warning("%s failed at step %d: %s", name, step.step, outcome.reason)
                failure = f"{outcome.reason}, at step {step.step}"
                self.counts = replace(self.counts, failure=failure)
        else:
            self._count_data(outcome, step)
        if isinstance(outcome, IssueFound):
            found = replace(outcome.evidence, mode_step=step.mode_step)
            before = self.evidence
            self.evidence = found if before is None else before.seen_again(step.step)
        return outcome

    def skip(self, reason: str, mode: str = "") -> None:
        """Count a step as not evaluated; the mode is empty if unknown."""
        if not self.failure:
            self.counts = self.counts.with_not_evaluated(reason, mode)

    def _count_data(self, outcome: Passed | IssueFound | NotEvaluated, step: StepView) -> None:
        """Count a step with the rule's data: a decision once the needs of the rule are met."""
        passed = outcome if isinstance(outcome, Passed) else Passed()
        has_decided = passed.has_decided or isinstance(outcome, IssueFound)
        self.counts = self.counts.with_data(
            self._needs,
            step.mode_step,
            reason=outcome.reason if isinstance(outcome, NotEvaluated) else "",
            is_decision=has_decided or self.counts.evaluated > 0,
        )
        if passed.advice and not self.counts.advice:
            advice = shortened(str(passed.advice), MAX_TEXT)
            self.counts = replace(self.counts, advice=advice)

    def _check(self, step: StepView) -> Outcome:
        memory = _json_copy(self.memory)
        judging = type(self._rule)
        name = judging.__name__
        try:
            self._needs = _needs_of(self._rule)
            outcome: object = self._rule.check(step, memory)
        except Missing as missing:
            outcome = NotEvaluated(str(missing), needs_more=isinstance(missing, NotEnough))
        except StorageError as error:
            if not isinstance(error, ObjectNotFoundError):
                raise
            return NotEvaluated(str(error))
        except UNAVAILABLE as error:
            return NotEvaluated(str(error))
        except (Exception, SystemExit) as error:  # custom rules can raise anything
            _logger.debug("%s failed at step %d", name, step.step, exc_info=True)
            return Failed(failure_reason(error, judging))
        if not isinstance(outcome, (Passed, IssueFound, NotEvaluated, Failed)):
            return Failed(wrong_outcome(outcome, judging))
        if isinstance(outcome, IssueFound):
            outcome = IssueFound(completed(outcome.evidence, judging, step))
        if not isinstance(outcome, Failed):
            try:
                self.memory = _json_copy(memory)
            except (TypeError, RecursionError) as error:
                text = f"{name}.check put a value into memory that cannot be stored: {error}"
                return Failed(located_in_check(text, judging))
        return outcome


def _needs_of(rule: Rule) -> Needs:
    needs: object = rule.needs()
    if not isinstance(needs, Needs):
        raise TypeError(f"needs() returned {reprlib.repr(needs)}, and must return Needs(...)")
    return needs


def _json_copy(value: Any) -> Any:
    """Return a deep copy of a memory; converts numpy's numbers to Python's.

    Raises:
        TypeError: If it holds a value that JSON cannot represent.
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
