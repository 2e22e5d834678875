"""The checkpoint of one rule over one run: all that is kept between two looks at the job.

Its size does not grow with the job: sequences are kept as ranges, and what waits to be fed is
bounded (`MAX_PENDING` in `progress.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.engine.reason_tally import Reason, commonest
from rule_runtime.engine.run_progress import Progress, WorkerProgress

__all__ = ["MEMORY_VERSION", "Counts", "EvaluationState", "Progress", "WorkerProgress"]

MEMORY_VERSION: Final = 2
"""Raised whenever what a built-in rule keeps in its memory changes its meaning."""

_NO_STEP: Final = "no step of this run was saved"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the steps of a run.

    Attributes:
        evaluated: Steps that the rule judged.
        not_evaluated: Steps that it could not judge.
        not_applicable: Steps that are none of those that it judges.
        last_reason: Why the last of those that it could not judge could not be judged; without any,
            why the last one was not applicable.
        unreadable: Index files that could not be parsed.
        last_problem: What was wrong with the last of these, or who was last given up.
        missing: Index files that a run which has ended should have and has not: steps that were to
            be saved and are not stored.
        failure: Why no further step is shown to the rule: it raised, or answered with nonsense.
        given_up: How often steps were fed without waiting for a worker any longer, each worker
            counted.
        reasons: Why steps could not be judged, and how many each.
    """

    evaluated: int = 0
    not_evaluated: int = 0
    not_applicable: int = 0
    last_reason: str = ""
    unreadable: int = 0
    last_problem: str = ""
    missing: int = 0
    failure: str = ""
    given_up: int = 0
    reasons: tuple[Reason, ...] = ()

    @property
    def main_reason(self) -> str:
        """Why most of the steps that the rule could not judge could not be judged.

        Without any, why the last one was not applicable.
        """
        most = commonest(self.reasons)
        return self.last_reason if most is None else most.text

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "evaluated": self.evaluated,
            "not_evaluated": self.not_evaluated,
            "not_applicable": self.not_applicable,
            "last_reason": self.last_reason,
            "unreadable": self.unreadable,
            "last_problem": self.last_problem,
            "missing": self.missing,
            "failure": self.failure,
            "given_up": self.given_up,
            "reasons": [each.to_json() for each in self.reasons],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counts:
        """Return the counts that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        return cls(
            evaluated=int(data["evaluated"]),
            not_evaluated=int(data["not_evaluated"]),
            not_applicable=int(data.get("not_applicable", 0)),
            last_reason=str(data["last_reason"]),
            unreadable=int(data.get("unreadable", 0)),
            last_problem=str(data.get("last_problem", "")),
            missing=int(data.get("missing", 0)),
            failure=str(data.get("failure", "")),
            given_up=int(data.get("given_up", 0)),
            reasons=tuple(map(Reason.from_json, data.get("reasons", ()))),
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationState:
    """One rule's state over one run.

    Attributes:
        status: The status as the training API names it.
        progress: How far the run has been fed.
        memory: The rule's own memory; JSON-able.
        evidence: What the finding rests on, if there is one.
        counts: What became of the steps.
        transition: Raised by one whenever `status` changes; 1 for the first state.
        announced_transition: The last transition that was announced; 0 before the first.
        ended: True once the run's end was seen and the verdict drawn, or the run was given up.
        blocked_by: Why no step is fed any more; empty when nothing is in the way. Anyone who
            evaluates sets it and takes it back; together with `ended` it is for good.
        memory_version: `MEMORY_VERSION` of the code that wrote the memory; 0 if unknown. A memory
            of another version is never read: the run is evaluated again from its beginning.
    """

    status: RuleStatus
    progress: Progress
    memory: Mapping[str, Any]
    evidence: Evidence | None
    counts: Counts
    transition: int
    announced_transition: int
    ended: bool
    blocked_by: str = ""
    memory_version: int = MEMORY_VERSION

    @classmethod
    def initial(cls) -> EvaluationState:
        """Return the state of a run without any file, before its InProgress is announced."""
        return cls(
            status=RuleStatus.IN_PROGRESS,
            progress=Progress(),
            memory={},
            evidence=None,
            counts=Counts(),
            transition=1,
            announced_transition=0,
            ended=False,
        )

    @property
    def reason(self) -> str:
        """Why nothing could be judged, for a status of Error."""
        counts = self.counts
        found = self.blocked_by or counts.failure or counts.main_reason or counts.last_problem
        return found or _NO_STEP

    @property
    def has_found_nothing_to_judge(self) -> bool:
        """True for an Error that is no mistake of anybody: nothing of the run fits the rule."""
        has_failed = self.counts.failure or self.blocked_by
        return self.status is RuleStatus.ERROR and not has_failed and bool(self.reason)

    @property
    def is_given_up(self) -> bool:
        """True if no further step of this run is ever judged, though the run may go on."""
        return self.ended and bool(self.blocked_by or self.counts.failure)

    @property
    def is_announced(self) -> bool:
        """True if the current status has been announced."""
        return self.announced_transition >= self.transition

    def with_status(self, status: RuleStatus) -> EvaluationState:
        """Return the state with another status, `transition` raised if it differs.

        Args:
            status: The new status.
        """
        if status is self.status:
            return self
        return replace(self, status=status, transition=self.transition + 1)

    def announced(self) -> EvaluationState:
        """Return the state with its current transition marked as announced."""
        return replace(self, announced_transition=self.transition)

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return {
            "status": self.status.value,
            "progress": self.progress.to_json(),
            "memory": dict(self.memory),
            "evidence": None if self.evidence is None else self.evidence.to_json(),
            "counts": self.counts.to_json(),
            "transition": self.transition,
            "announced_transition": self.announced_transition,
            "ended": self.ended,
            "blocked_by": self.blocked_by,
            "memory_version": self.memory_version,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EvaluationState:
        """Return the state that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        evidence = data["evidence"]
        return cls(
            status=RuleStatus(data["status"]),
            progress=Progress.from_json(data["progress"]),
            memory=dict(data["memory"]),
            evidence=None if evidence is None else Evidence.from_json(evidence),
            counts=Counts.from_json(data["counts"]),
            transition=int(data["transition"]),
            announced_transition=int(data["announced_transition"]),
            ended=bool(data["ended"]),
            blocked_by=str(data.get("blocked_by") or ""),
            memory_version=int(data.get("memory_version", 0)),
        )
