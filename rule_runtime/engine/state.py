"""The state of one rule over one run, stored between evaluations.

Its size does not grow with the run: numbers of files are stored as ranges, and waiting files are
bounded (`MAX_PENDING` in `progress.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from rule_runtime.engine.counts import Counts
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.json_codec import JsonRecord
from rule_runtime.engine.outcome import MAX_STATUS_DETAILS_LENGTH, RuleStatus, shortened
from rule_runtime.engine.progress import Progress

__all__ = ["MEMORY_VERSION", "Counts", "EvaluationState", "Progress"]

MEMORY_VERSION: Final = 5
"""Increase it when the meaning of a built-in rule's memory changes."""
_MAX_TEXT: Final = MAX_STATUS_DETAILS_LENGTH
"""Maximum characters of a text in the small state of a rule that was given up."""
_NO_STEP: Final = "no step of this run was saved"


@dataclass(frozen=True, kw_only=True)
class EvaluationState(JsonRecord):
    """One rule's state over one run.

    Attributes:
        status: The status in the training API.
        progress: Progress of feeding the run; never changed in place.
        memory: The rule's own memory, as JSON.
        counts: Counts of the steps.
        transition: Incremented at each change of `status`; 1 for the first state.
        announced_transition: The last announced transition; 0 before the first.
        ended: True once the run has ended with a verdict, or was given up.
        evidence: The evidence of the finding; None without one.
        blocked_by: Why no step can be fed now; empty if nothing blocks it. Evaluators set and clear
            it; with `ended` it is permanent.
        memory_version: `MEMORY_VERSION` of the code that wrote the memory; 0 if unknown. If the
            version differs, the memory is not read: the run is evaluated from its first step again.
    """

    status: RuleStatus
    progress: Progress
    memory: Mapping[str, Any]
    counts: Counts
    transition: int
    announced_transition: int
    ended: bool
    evidence: Evidence | None = None
    blocked_by: str = ""
    memory_version: int = 0

    def __repr__(self) -> str:
        counts = f"{self.counts.evaluated} evaluated, {self.counts.not_evaluated} not evaluated"
        said = self.reason if self.status is RuleStatus.ERROR else ""
        said = said if self.evidence is None else self.evidence.line
        return f"<EvaluationState {self.status.value}, {counts}{said and f': {said!r}'}>"

    @classmethod
    def initial(cls) -> EvaluationState:
        """Return the state of a run without files, before InProgress is announced."""
        return cls(
            status=RuleStatus.IN_PROGRESS,
            progress=Progress(),
            memory={},
            counts=Counts(),
            transition=1,
            announced_transition=0,
            ended=False,
            memory_version=MEMORY_VERSION,
        )

    @property
    def reason(self) -> str:
        """Why nothing was evaluated, for a status of Error."""
        counts = self.counts
        lacking = counts.lacking if counts.is_undecided else counts.main_reason
        return self.blocked_by or counts.failure or lacking or counts.last_problem or _NO_STEP

    @property
    def has_evaluated_nothing(self) -> bool:
        """True for an Error without a fault: the run has no data that the rule evaluates."""
        has_failed = self.counts.failure or self.blocked_by
        return self.status is RuleStatus.ERROR and not has_failed

    @property
    def needs_more(self) -> bool:
        """True for an Error of a rule that had its data, and would decide with more of it."""
        return self.has_evaluated_nothing and self.counts.is_undecided

    @property
    def is_given_up(self) -> bool:
        """True if no further step of this run will be evaluated, though it may continue."""
        return self.ended and bool(self.blocked_by or self.counts.failure)

    @property
    def is_announced(self) -> bool:
        """True if the current status has been announced."""
        return self.announced_transition >= self.transition

    def with_status(self, status: RuleStatus) -> EvaluationState:
        """Return the state with another status; increments `transition` if it differs."""
        if status is self.status:
            return self
        return replace(self, status=status, transition=self.transition + 1)

    def blocked(self, reason: str) -> EvaluationState:
        """Return the state of an evaluation that cannot continue for now; a verdict stays."""
        if self.status.is_final and not self.blocked_by:
            return self
        return replace(self, blocked_by=shortened(reason, _MAX_TEXT)).with_status(RuleStatus.ERROR)

    def unblocked(self) -> EvaluationState:
        """Return the state of an evaluation that can continue again."""
        if not self.blocked_by:
            return self
        return replace(self, blocked_by="").with_status(RuleStatus.IN_PROGRESS)

    def given_up(self, reason: str) -> EvaluationState:
        """Return the state of an evaluation that can never continue, small enough for a table."""
        counts = replace(
            self.counts,
            last_reason=shortened(self.counts.last_reason, _MAX_TEXT),
            last_problem=shortened(self.counts.last_problem, _MAX_TEXT),
            failure=shortened(self.counts.failure, _MAX_TEXT),
        )
        emptied = replace(
            self,
            progress=Progress(),
            memory={},
            evidence=None if self.evidence is None else _shortened(self.evidence),
            counts=counts,
            ended=True,
            blocked_by=shortened(reason, _MAX_TEXT),
        )
        return emptied if self.status.is_final else emptied.with_status(RuleStatus.ERROR)

    def announced(self) -> EvaluationState:
        """Return the state with its current transition marked as announced."""
        return replace(self, announced_transition=self.transition)


def _shortened(evidence: Evidence) -> Evidence:
    """Return the evidence with texts short enough for an item; names come from files."""
    texts: dict[str, Any] = {
        item.name: shortened(value, _MAX_TEXT)
        for item in fields(evidence)
        if isinstance(value := getattr(evidence, item.name), str)
    }
    return replace(evidence, **texts)
