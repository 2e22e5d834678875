"""Finds the runs of messages, the new files of each run, and the rules to evaluate."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hook_layer.format.end_marker import MAX_END_MARKER_BYTES, EndMarker, parse_end_marker
from hook_layer.format.errors import JobFileError
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import ObjectNotFoundError, Store
from hook_layer.storage.small_files import read_small
from lambdas.evaluate_rule.continuation import OutOfTimeError
from lambdas.evaluate_rule.run_evaluation import RunEvaluation, RunFiles
from lambdas.shared.registration import RUN_ID
from lambdas.shared.state_item import StateKey
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.trial.step_index import StepFile, iter_step_files

if TYPE_CHECKING:
    from lambdas.evaluate_rule.attempts import RuleAttempts
    from lambdas.evaluate_rule.job_registry import JobRegistry
    from lambdas.evaluate_rule.messages import TensorObject
    from lambdas.evaluate_rule.rules import RuleSource
    from lambdas.evaluate_rule.time_budget import TimeBudget
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration

__all__ = ["JobEvaluation"]

_MAX_PORTION_BYTES: Final = 16 << 20
"""Maximum size of index files in memory at a time; parsed, they take about three times that."""
_MAX_PORTION_FILES: Final = 1000
_FAREWELL_S: Final = 600.0
"""Maximum delay until the last files of a run are visible, seconds."""
_OF_SWEEPS: Final = (WakeReason.SWEEP, WakeReason.SILENT)
_RANK: Final = {
    WakeReason.CONTINUE: 0,
    WakeReason.SWEEP: 1,
    WakeReason.SILENT: 2,
    WakeReason.ENDED: 3,
}
"""Priority of reasons to check a run."""


@dataclass(frozen=True)
class JobEvaluation:
    """Evaluates jobs for the rules of a function.

    Attributes:
        rule_source: Which rules these are.
        jobs: Registrations of the jobs by root.
        evaluation: Evaluates a rule over a run.
        telemetry: Logs and metrics.
        group: Name of the item with the states of all rules; empty if each rule has its own.
        order: Chooses which of several rules is evaluated first.
    """

    rule_source: RuleSource
    jobs: JobRegistry
    evaluation: RunEvaluation
    telemetry: Telemetry
    group: str = ""
    order: random.Random = field(default_factory=random.Random)

    def look_at(
        self,
        store: Store,
        objects: Sequence[TensorObject],
        wakes: Sequence[Wake],
        budget: TimeBudget,
        attempts: RuleAttempts | None = None,
        *,
        is_limited: bool = False,
    ) -> None:
        """Update the rules' states of a job.

        Args:
            store: The trial's root.
            objects: New objects in it.
            wakes: Wakes for its runs.
            budget: The time budget.
            attempts: Attempts at the rules, which are recorded; None for a first delivery.
            is_limited: Whether the job has more files than are evaluated as they come.

        Raises:
            OutOfTimeError: Some objects or rules had no budget.
        """
        has_marker = any(found.is_end_marker for found in objects)
        has_ended = has_marker or any(wake.reason is WakeReason.ENDED for wake in wakes)
        if not self.jobs.asks(store, self.rule_source.names, has_ended=has_ended):
            if objects:
                self.telemetry.count("MessagesNotAskedFor", len(objects))
            # Wakes for a sweep or a continuation refer to a state, so the run requested that rule.
            objects = ()
            wakes = [wake for wake in wakes if wake.reason is not WakeReason.ENDED]
            if not wakes:
                return
        wakes = [self._with_successor(store, wake) for wake in wakes]
        self._retire(store, wakes)
        marker = self._end_marker(store) if has_marker or _may_have_ended(wakes) else None
        if has_marker and marker is None:
            self.telemetry.info("the end marker ends no run: another one has begun")
        due = _Due(
            marker=marker,
            tells_end=has_marker,
            wakes=wakes,
            created_at=_newest(objects),
            budget=budget,
            attempts=attempts,
            is_limited=is_limited,
        )
        sizes = {found.key: found.size for found in objects if not found.is_end_marker}
        keys = sorted(sizes)
        for files, is_last in _portions(iter_step_files(store, keys, sizes)):
            self._evaluate_runs(store, self._files_by_run(store, files), due, is_last=is_last)
            if not is_last and not budget.may_go_on():
                raise OutOfTimeError(f"no time for all files of {store.uri}")

    def _evaluate_runs(
        self, store: Store, runs: dict[str, list[StepFile]], due: _Due, *, is_last: bool
    ) -> None:
        if is_last:
            for run in due.runs:
                runs.setdefault(run, [])
        for run, files in sorted(runs.items()):
            registration = self.jobs.of_run(store, run)
            rules = self._rules(registration, due, has_files=bool(files))
            groups = [(self.group, rules)] if self.group else [(rule, [rule]) for rule in rules]
            is_due = bool(rules) or (bool(self.group) and run in due.runs)
            for number, (name, of_group) in enumerate(groups if is_due else ()):
                if number and not due.budget.may_go_on():
                    raise OutOfTimeError(f"no time for all rules of {store.uri}")
                budget = due.budget.share(len(groups) - number)
                found = RunFiles(
                    store,
                    registration,
                    files,
                    budget,
                    attempts=due.attempts,
                    is_limited=due.is_limited,
                )
                found = due.completed(found, of_group) if is_last else found
                with self.telemetry.job(registration.training_job_name, run):
                    self.evaluation.look_at(name, of_group, found)

    def _rules(self, job: Registration, due: _Due, *, has_files: bool) -> list[str]:
        """Return the due rules in varying order, so that none is always the last."""
        rules: set[str] = set()
        if has_files or due.is_for_all_rules(job.run_id):
            rules.update(self.rule_source.names(job))  # a newer run may request none
        rules.update(rule for rule in due.rules(job.run_id) if self.rule_source.includes(rule, job))
        ordered = sorted(rules)
        self.order.shuffle(ordered)
        return ordered

    def _retire(self, store: Store, wakes: Iterable[Wake]) -> None:
        """Remove states that an item of the other mode holds, too; a sweep's wake comes from one.

        The wake of a rule's item names the rule, the wake of a group's item names none.
        """
        for wake in wakes:
            if bool(wake.rule) is not bool(self.group) or wake.reason not in _OF_SWEEPS:
                continue
            job = self.jobs.of_run(store, wake.run_id)
            for rule in [wake.rule] if wake.rule else self.rule_source.names(job):
                if self.rule_source.includes(rule, job):
                    key = StateKey(wake.root_uri, wake.run_id, rule)
                    self.evaluation.states.retire(key)

    def _with_successor(self, store: Store, wake: Wake) -> Wake:
        """Return a wake; mark a silent run as ended if the job has a newer run."""
        is_quiet = wake.reason is WakeReason.SWEEP and wake.silent_s >= _FAREWELL_S
        if not is_quiet or not self.jobs.has_successor(store, wake.run_id):
            return wake
        self.telemetry.info("a newer run has begun: this one is over", run_id=wake.run_id)
        return replace(wake, reason=WakeReason.SILENT)

    def _files_by_run(self, store: Store, files: Iterable[StepFile]) -> dict[str, list[StepFile]]:
        """Return the files by run; files of the original client belong to the run "".

        A file that cannot be parsed counts for the current run.
        """
        runs: dict[str, list[StepFile]] = defaultdict(list)
        for file in files:
            if file.index is None:
                runs[self.jobs.current(store).run_id].append(file)
            elif file.index.run is None or RUN_ID.fullmatch(file.index.run):
                runs[file.index.run or ""].append(file)
            else:
                self.telemetry.count("FilesIgnored")
                self.telemetry.warning("index file with an impossible run id", object_key=file.key)
        return runs

    def _end_marker(self, store: Store) -> EndMarker | None:
        """Return the end marker and its run; None if it does not end a run.

        Like the original's, an unreadable marker ends the current run; its files are then found by
        listing.
        """
        try:
            marker = read_small(store, END_MARKER, MAX_END_MARKER_BYTES, parse_end_marker)
        except ObjectNotFoundError:
            return None
        except JobFileError as error:
            self.telemetry.count("EndMarkersUnreadable")
            self.telemetry.warning("the end marker cannot be read", problem=str(error))
            marker = EndMarker()
        if marker.run_id is None:
            return replace(marker, run_id=self.jobs.current(store).run_id)
        if RUN_ID.fullmatch(marker.run_id) is None:
            self.telemetry.warning("end marker with an impossible run id", text=marker.run_id[:80])
            return None
        return marker


@dataclass(frozen=True)
class _Due:
    """Work that is due after all files of a job's messages are processed.

    Attributes:
        marker: The end marker, if it was read and exists.
        tells_end: Whether a message is about the end marker, so that its run is due.
        wakes: Wakes for runs.
        created_at: Creation time of the newest object, seconds since the epoch.
        budget: The time budget.
        attempts: Attempts at the rules.
        is_limited: Whether the job has more files than are evaluated as they come.
    """

    marker: EndMarker | None
    tells_end: bool
    wakes: Sequence[Wake]
    created_at: float | None
    budget: TimeBudget
    attempts: RuleAttempts | None = None
    is_limited: bool = False

    @property
    def runs(self) -> Iterable[str]:
        """The runs that must be evaluated, with or without files."""
        runs = {wake.run_id for wake in self.wakes}
        if self.tells_end and self.marker is not None and self.marker.run_id is not None:
            runs.add(self.marker.run_id)
        return runs

    def is_for_all_rules(self, run: str) -> bool:
        """Return whether every rule of a run is due without files, because the run has ended."""
        is_marked = self.tells_end and self.marker is not None and self.marker.run_id == run
        return is_marked or any(w.run_id == run and not w.rule for w in self.wakes)

    def rules(self, run: str) -> Iterable[str]:
        """Return the rules of a run that wakes name."""
        return {wake.rule for wake in self.wakes if wake.run_id == run and wake.rule}

    def completed(self, found: RunFiles, rules: Sequence[str]) -> RunFiles:
        """Return the new files of a run, with its end and the wake for a group of rules."""
        run = found.registration.run_id
        wake = _merged(w for w in self.wakes if w.run_id == run and w.rule in ("", *rules))
        is_marked = self.marker is not None and self.marker.run_id == run
        return replace(
            found,
            has_ended=is_marked or (wake is not None and wake.reason is WakeReason.ENDED),
            last_sequences=self.marker.sequences if self.marker and is_marked else {},
            created_at=self.created_at,
            wake=wake,
        )


def _newest(objects: Iterable[TensorObject]) -> float | None:
    """Return the creation time of the newest object; None if unknown."""
    return max((at for found in objects if (at := found.created_at) is not None), default=None)


def _may_have_ended(wakes: Iterable[Wake]) -> bool:
    """Return whether to read the marker; not for a run whose end is already being processed."""
    return any(wake.reason is not WakeReason.CONTINUE for wake in wakes)


def _merged(wakes: Iterable[Wake]) -> Wake | None:
    """Merge several wakes of the same run into one; None if there are none."""
    # Of several continuations, only the newest has the current state.
    ordered = sorted(wakes, key=lambda wake: (_RANK[wake.reason], wake.version))
    return replace(ordered[-1], hop=max(wake.hop for wake in ordered)) if ordered else None


def _portions(files: Iterator[StepFile]) -> Iterator[tuple[list[StepFile], bool]]:
    """Yield the files in lists that fit into memory, and whether a list is the last one.

    The last list is yielded even if it is empty.
    """
    portion: list[StepFile] = []
    num_bytes = 0
    for file in files:
        is_long = num_bytes + file.num_bytes > _MAX_PORTION_BYTES
        if portion and (is_long or len(portion) >= _MAX_PORTION_FILES):
            yield portion, False
            portion, num_bytes = [], 0
        portion.append(file)
        num_bytes += file.num_bytes
    yield portion, True
