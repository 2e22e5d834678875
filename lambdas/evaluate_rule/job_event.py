"""The messages of a job and of its runs, as each level of an evaluator completes them.

Parsing (`service.py`, `job_evaluation.py`) fills a `JobEvent` with the messages of a job, and makes
a `RunEvent` for each of its runs. Advancing (`run_evaluation.py`) adds the states, and publishing
(`publication.py`) reports their changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lambdas.shared.state_item import StateKey
from lambdas.shared.states import StoredGroup
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.configuration.requested_rules import is_rule_name

if TYPE_CHECKING:
    from hook_layer.format.end_marker import EndMarker
    from hook_layer.storage.base import Store
    from lambdas.evaluate_rule.attempts import RuleAttempts
    from lambdas.evaluate_rule.job_limits import TimeBudget
    from lambdas.evaluate_rule.messages import TensorObject
    from lambdas.shared.registration import Registration
    from rule_runtime.trial.step_index import StepFile

__all__ = ["JobEvent", "RunEvent"]

_RANK: Final = {
    WakeReason.CONTINUE: 0,
    WakeReason.SWEEP: 1,
    WakeReason.SILENT: 2,
    WakeReason.ENDED: 3,
}
"""Priority of reasons to check a run."""


@dataclass(kw_only=True)
class JobEvent:
    """The messages of a batch for one job.

    Attributes:
        root_uri: The trial's root.
        budget: The time budget.
        objects: New objects in the root.
        wakes: Wakes for its runs.
        message_ids: Ids of the messages.
        was_received: Whether a message was delivered before.
        is_limited: Whether the job has more files than are evaluated as they come.
        attempts: Attempts at the rules, which are recorded; None for a first delivery.
        has_marker: Whether a message is about the end marker, so that its run is due.
        marker: The end marker, if it was read and ends a run.
    """

    root_uri: str
    budget: TimeBudget
    objects: list[TensorObject] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    was_received: bool = False
    is_limited: bool = False
    attempts: RuleAttempts | None = None
    has_marker: bool = False
    marker: EndMarker | None = None

    @property
    def created_at(self) -> float | None:
        """Creation time of the newest object, seconds since the epoch; None if unknown."""
        times = [found.created_at for found in self.objects if found.created_at is not None]
        return max(times, default=None)

    @property
    def runs(self) -> Collection[str]:
        """The runs that must be evaluated, with or without files."""
        runs = {wake.run_id for wake in self.wakes}
        if self.has_marker and self.marker is not None and self.marker.run_id is not None:
            runs.add(self.marker.run_id)
        return runs

    def is_for_all_rules(self, run: str) -> bool:
        """Return whether every rule of a run is due without files, because the run has ended."""
        is_marked = self.has_marker and self.marker is not None and self.marker.run_id == run
        return is_marked or any(w.run_id == run and not w.rule for w in self.wakes)

    def woken_rules(self, run: str) -> Iterable[str]:
        """Return the rules of a run that wakes name."""
        return {wake.rule for wake in self.wakes if wake.run_id == run and wake.rule}


@dataclass(kw_only=True)
class RunEvent:
    """One run of a job with its due rules, and what each level adds.

    Attributes:
        job: The messages of the job.
        store: The trial's root.
        registration: The job, with the current run.
        name: Name of the item: its rule's configuration name, or the evaluator's.
        rules: Configuration names of the rules that are due.
        files: The run's index files in events.
        budget: The time budget.
        has_ended: True if the run's end marker was read.
        last_sequences: Number of each worker's last index file in the end marker.
        created_at: Creation time of the newest object, seconds since the epoch.
        wake: The wake for the run, besides its files.
        reason: Reason to evaluate the run without new files; None if there are new files.
        group: The stored states.
        lost: Rules with lost memories, with the reason.
        advanced: Rules whose state has changed.
        has_more: Whether work remains that needs no further file.
        has_time: Whether every rule was evaluated.
    """

    job: JobEvent
    store: Store
    registration: Registration
    name: str
    rules: Sequence[str]
    files: Sequence[StepFile]
    budget: TimeBudget
    has_ended: bool = False
    last_sequences: Mapping[str, int] = field(default_factory=dict)
    created_at: float | None = None
    wake: Wake | None = None
    reason: WakeReason | None = None
    group: StoredGroup = field(init=False)
    lost: Mapping[str, str] = field(default_factory=dict)
    advanced: Collection[str] = ()
    has_more: bool = False
    has_time: bool = True

    def __post_init__(self) -> None:
        run = self.registration
        self.group = StoredGroup(StateKey(run.root_uri, run.run_id, self.name))

    def complete(self) -> None:
        """Add the end of the run and its wake, with the last files."""
        job, run = self.job, self.registration.run_id
        self.wake = _merged(w for w in job.wakes if w.run_id == run and w.rule in ("", *self.rules))
        self.reason = None if self.wake is None or self.files else self.wake.reason
        is_marked = job.marker is not None and job.marker.run_id == run
        self.has_ended = is_marked or (
            self.wake is not None and self.wake.reason is WakeReason.ENDED
        )
        self.last_sequences = job.marker.sequences if job.marker and is_marked else {}
        self.created_at = job.created_at

    def continuation(self) -> Wake:
        """Return the wake that continues this call."""
        hop = 0 if self.wake is None else self.wake.hop
        key, version, reason = self.group.key, self.group.version, WakeReason.CONTINUE
        rule = key.rule if is_rule_name(key.rule) else ""
        return Wake(key.root_uri, key.run_id, reason, hop, version=version, rule=rule)


def _merged(wakes: Iterable[Wake]) -> Wake | None:
    """Merge several wakes of the same run into one; None if there are none."""
    # Of several continuations, only the newest has the current state.
    ordered = sorted(wakes, key=lambda wake: (_RANK[wake.reason], wake.version))
    return replace(ordered[-1], hop=max(wake.hop for wake in ordered)) if ordered else None
