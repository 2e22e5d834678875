"""The checkpoint of one rule over one run: all that is kept between two looks at the job.

Its size does not grow with the job: sequences are kept as ranges, and what waits to be fed is
bounded (`MAX_PENDING` in `progress.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rule_runtime.evaluation.outcome import Evidence, RuleStatus

__all__ = ["Counts", "EvaluationState", "Progress", "WorkerProgress"]

_NO_STEP: Final = "no step of this run was saved"


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """What is known of one worker's index files.

    Attributes:
        seen: Ranges of sequences seen, `((first, last), ...)`; a gap between two ranges is a hole.
        passed_step: Every index file that this worker wrote up to this step has been seen.
        pending: Files seen and not yet fed, `((step, sequence), ...)` in step order; sequence 0 for
            a file without one.
        listed: Holes below this sequence have been looked for by a listing already.
        forgotten: True if files were seen that did not fit into `pending`; a listing finds them
            again.
        unsequenced: Number of files without a sequence seen so far.
        lost: Sequences that never come, as later files say: steps that could not be stored.
    """

    seen: tuple[tuple[int, int], ...] = ()
    passed_step: int = -1
    pending: tuple[tuple[int, int], ...] = ()
    listed: int = 0
    forgotten: bool = False
    unsequenced: int = 0
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the progress as JSON, without the fields that hold their defaults."""
        data: dict[str, Any] = {
            "seen": [list(pair) for pair in self.seen],
            "step": self.passed_step,
        }
        if self.pending:
            data["pending"] = [list(pair) for pair in self.pending]
        if self.listed:
            data["listed"] = self.listed
        if self.forgotten:
            data["forgotten"] = True
        if self.unsequenced:
            data["unsequenced"] = self.unsequenced
        if self.lost:
            data["lost"] = self.lost
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerProgress:
        """Return the progress that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        return cls(
            seen=tuple((int(first), int(last)) for first, last in data["seen"]),
            passed_step=int(data["step"]),
            pending=tuple((int(step), int(seq)) for step, seq in data.get("pending", ())),
            listed=int(data.get("listed", 0)),
            forgotten=bool(data.get("forgotten", False)),
            unsequenced=int(data.get("unsequenced", 0)),
            lost=int(data.get("lost", 0)),
        )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run has been fed to a rule.

    Attributes:
        workers: Progress of each worker seen, by name.
        num_workers: How many workers write, once known.
        fed_step: The last global step that was fed; -1 before the first.
        late: Files that came after their step had been fed.
        replayed: The value of `late` when the run was last replayed.
        unreadable: Files that could not be parsed, `((step, worker), ...)`; the first 1,000 of
            them.
    """

    workers: Mapping[str, WorkerProgress] = field(default_factory=dict)
    num_workers: int | None = None
    fed_step: int = -1
    late: int = 0
    replayed: int = 0
    unreadable: tuple[tuple[int, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the progress as JSON."""
        return {
            "workers": {name: self.workers[name].to_json() for name in sorted(self.workers)},
            "num_workers": self.num_workers,
            "fed_step": self.fed_step,
            "late": self.late,
            "replayed": self.replayed,
            "unreadable": [list(name) for name in self.unreadable],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """Return the progress that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        num_workers = data["num_workers"]
        return cls(
            workers={
                name: WorkerProgress.from_json(worker) for name, worker in data["workers"].items()
            },
            num_workers=None if num_workers is None else int(num_workers),
            fed_step=int(data["fed_step"]),
            late=int(data["late"]),
            replayed=int(data["replayed"]),
            unreadable=tuple((int(step), str(worker)) for step, worker in data["unreadable"]),
        )


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the steps of a run.

    Attributes:
        evaluated: Steps that the rule judged.
        not_evaluated: Steps that it could not judge.
        last_reason: Why the last of these could not be judged.
        unreadable: Index files that could not be parsed.
        last_problem: What was wrong with the last of these.
        missing: Index files that a run which has ended should have and has not: steps that were to
            be saved and are not stored.
        failure: Why no further step is shown to the rule: it raised, or answered with nonsense.
    """

    evaluated: int = 0
    not_evaluated: int = 0
    last_reason: str = ""
    unreadable: int = 0
    last_problem: str = ""
    missing: int = 0
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "evaluated": self.evaluated,
            "not_evaluated": self.not_evaluated,
            "last_reason": self.last_reason,
            "unreadable": self.unreadable,
            "last_problem": self.last_problem,
            "missing": self.missing,
            "failure": self.failure,
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
            last_reason=str(data["last_reason"]),
            unreadable=int(data.get("unreadable", 0)),
            last_problem=str(data.get("last_problem", "")),
            missing=int(data.get("missing", 0)),
            failure=str(data.get("failure", "")),
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
        blocked_by: Why no step is fed any more; empty when nothing is in the way. Whoever evaluates
            sets it and takes it back; together with `ended` it is for good.
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

    @classmethod
    def initial(cls) -> EvaluationState:
        """Return the state of a run of which nothing was seen, its InProgress not announced yet."""
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
        found = self.blocked_by or counts.failure or counts.last_reason or counts.last_problem
        return found or _NO_STEP

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
        )
