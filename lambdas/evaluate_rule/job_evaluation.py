"""Finds the runs of messages, the new files of each run, and the rules to evaluate."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hook_layer.format.end_marker import MAX_END_MARKER_BYTES, EndMarker, parse_end_marker
from hook_layer.format.errors import JobFileError
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import ObjectNotFoundError, Store, read_small
from lambdas.evaluate_rule.continuation import OutOfTimeError
from lambdas.evaluate_rule.job_event import JobEvent, RunEvent
from lambdas.shared.registration import RUN_ID
from lambdas.shared.state_item import StateKey
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.trial.step_index import StepFile, iter_step_files

if TYPE_CHECKING:
    from lambdas.evaluate_rule.job_registry import JobRegistry
    from lambdas.evaluate_rule.rules import RuleSource
    from lambdas.evaluate_rule.run_evaluation import RunEvaluation
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration

__all__ = ["JobEvaluation"]

_MAX_PORTION_BYTES: Final = 16 << 20
"""Maximum size of index files in memory at a time; parsed, they take about three times that."""
_MAX_PORTION_FILES: Final = 1000
_FAREWELL_S: Final = 600.0
"""Maximum delay until the last files of a run are visible, seconds."""
_OF_SWEEPS: Final = (WakeReason.SWEEP, WakeReason.SILENT)


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

    def evaluate(self, job: JobEvent, store: Store) -> None:
        """Update the rules' states of a job.

        Args:
            job: Its messages.
            store: The trial's root.

        Raises:
            OutOfTimeError: Some objects or rules had no budget.
        """
        files = [found for found in job.objects if found.key != END_MARKER]
        job.has_marker = len(files) < len(job.objects)
        has_ended = job.has_marker or any(w.reason is WakeReason.ENDED for w in job.wakes)
        if not self.jobs.asks(store, self.rule_source.names, has_ended=has_ended):
            if job.objects:
                self.telemetry.count("MessagesNotAskedFor", len(job.objects))
            # Wakes for a sweep or a continuation refer to a state, so the run requested that rule.
            files = job.objects = []
            job.wakes = [wake for wake in job.wakes if wake.reason is not WakeReason.ENDED]
            if not job.wakes:
                return
        job.wakes = [self._with_successor(store, wake) for wake in job.wakes]
        self._retire(store, job.wakes)
        if job.has_marker or _may_have_ended(job.wakes):
            job.marker = self._end_marker(store)
        if job.has_marker and job.marker is None:
            self.telemetry.info("the end marker ends no run: another one has begun")
        sizes = {found.key: found.size for found in files}
        keys = sorted(sizes)
        for portion, is_last in _portions(iter_step_files(store, keys, sizes)):
            self._evaluate_runs(job, store, self._files_by_run(store, portion), is_last=is_last)
            if not is_last and not job.budget.may_go_on():
                raise OutOfTimeError(f"no time for all files of {store.uri}")

    def _evaluate_runs(
        self, job: JobEvent, store: Store, runs: dict[str, list[StepFile]], *, is_last: bool
    ) -> None:
        if is_last:
            for run in job.runs:
                runs.setdefault(run, [])
        for run, files in sorted(runs.items()):
            registration = self.jobs.of_run(store, run)
            rules = self._rules(registration, job, has_files=bool(files))
            groups = [(self.group, rules)] if self.group else [(rule, [rule]) for rule in rules]
            is_due = bool(rules) or (bool(self.group) and run in job.runs)
            for number, (name, of_group) in enumerate(groups if is_due else ()):
                if number and not job.budget.may_go_on():
                    raise OutOfTimeError(f"no time for all rules of {store.uri}")
                event = RunEvent(
                    job=job,
                    store=store,
                    registration=registration,
                    name=name,
                    rules=of_group,
                    files=files,
                    budget=job.budget.share(len(groups) - number),
                )
                if is_last:
                    event.complete()
                with self.telemetry.job(registration.training_job_name, run):
                    self.evaluation.evaluate(event)

    def _rules(self, run: Registration, job: JobEvent, *, has_files: bool) -> list[str]:
        """Return the due rules in varying order, so that none is always the last."""
        rules: set[str] = set()
        if has_files or job.is_for_all_rules(run.run_id):
            rules.update(self.rule_source.names(run))  # a newer run may request none
        woken = job.woken_rules(run.run_id)
        rules.update(rule for rule in woken if self.rule_source.includes(rule, run))
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


def _may_have_ended(wakes: Iterable[Wake]) -> bool:
    """Return whether to read the marker; not for a run whose end is already being processed."""
    return any(wake.reason is not WakeReason.CONTINUE for wake in wakes)


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
