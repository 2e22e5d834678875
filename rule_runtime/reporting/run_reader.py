"""Reads as much of a run as a report needs: steps evenly over it, and those around findings.

One listing finds the files. They are read in coarse-to-fine order, so that reading can end at any
time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from hook_layer.format.job_file import StopFile
from hook_layer.storage.base import Store
from rule_runtime.engine.outcome import Evidence
from rule_runtime.reporting.files_of_run import MAX_WORKERS, FilesOfRun
from rule_runtime.reporting.finding_plot import watch_finding
from rule_runtime.reporting.run_history import RunHistory
from rule_runtime.reporting.value_statistics import MAX_VALUE_BYTES
from rule_runtime.trial.merged_shards import merged_by_step
from rule_runtime.trial.run_files import named_run, read_end_marker
from rule_runtime.trial.step_index import iter_step_files, list_index_files
from rule_runtime.trial.stop_request import read_stop_request

__all__ = ["ReadLimits", "RunReading", "current_run_of", "read_run"]

_MAX_WINDOWS: Final = 24
_SHARE_OF_LISTING: Final = 0.5
"""Maximum share of the time for finding the files."""
_SHARE_OF_FINDINGS: Final = 0.75
"""Maximum share of the limits for files around findings."""
_PORTION: Final = 64


@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """Limits on how much of a run is read.

    Attributes:
        steps: Number of steps, evenly over the run.
        bytes: Bytes of index files and values after which no further read starts.
        seconds: Seconds after which no further read starts.
    """

    steps: int = 1000
    bytes: int = 2 << 30
    seconds: float = 60.0


@dataclass
class RunReading:
    """The part of a run that was read.

    Attributes:
        run: Its RunId; None for files of the original client.
        has_ended: Whether the run has an end marker.
        num_steps: Number of steps with index files.
        notes: What was skipped, and why.
        stop: The stop request; None if there is none.
    """

    run: str | None
    has_ended: bool
    history: RunHistory
    num_steps: int = 0
    num_steps_read: int = 0
    first_step: int | None = None
    last_step: int | None = None
    workers: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    stop: StopFile | None = None

    @property
    def end(self) -> str:
        """The state of the training, in words."""
        if self.stop is None:
            going = "not ended" if self.num_steps else "nothing saved yet"
            return "ended" if self.has_ended else going
        rule, step = self.stop.rule_configuration_name, self.stopping_step
        by = "on request" if rule is None else f"by {rule}"
        if not self.has_ended:
            return f"asked to stop: {by}{_at(rule, step)}"
        if rule is None or step is None or step == self.last_step:
            return f"stopped {by}{_at(rule, step)}"
        return f"stopped {by}: found at step {step}, run stopped at step {self.last_step}"

    @property
    def stopping_step(self) -> int | None:
        """Step of the finding that caused the stop request; None if unknown."""
        found = None if self.stop is None else (self.stop.evidence or {}).get("step")
        return found if isinstance(found, int) else None

    def stop_to_json(self) -> dict[str, Any] | None:
        """Return the stop request as JSON; None if there is none."""
        if self.stop is None:
            return None
        return {
            "rule": self.stop.rule_configuration_name,
            "step": self.stopping_step,
            "reason": self.stop.reason,
            "requested_at": self.stop.requested_at,
        }


def _at(rule: str | None, step: int | None) -> str:
    return "" if rule is None or step is None else f" at step {step}"


def read_run(
    store: Store,
    evidence: Sequence[Evidence] = (),
    limits: ReadLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    on_start: Callable[[int], None] = lambda _: None,
    on_read: Callable[[str], None] = lambda _: None,
) -> RunReading:
    """Read the index files of a run that a report needs.

    From event files it reads only two kinds of values: those of tensors with zero counts, for
    findings about them, and small values and reductions of files without statistics. Steps around
    findings are read first. `on_start` is called with the number of files to read, `on_read` with
    the key of each.

    Raises:
        StorageError: If the storage fails, except for a missing object.
    """
    limits = limits or ReadLimits()
    began = clock()
    files = FilesOfRun.listed(store, lambda: clock() - began >= _SHARE_OF_LISTING * limits.seconds)
    run = current_run_of(store, files.last_key)
    marker = read_end_marker(store)
    history = RunHistory(store, {}, min(files.by_worker, default=None))
    reading = RunReading(run, marker is not None and marker.run_id == run, history)
    reading.stop = read_stop_request(store, run)
    reading.num_steps, reading.workers = len(files.steps), sorted(files.by_worker)
    if not files.steps:
        return reading
    reading.first_step, reading.last_step = files.steps[0], files.steps[-1]
    reader = _Reader(store, run, history, limits, clock, began, on_read)
    around = list(dict.fromkeys(files.around(evidence[:_MAX_WINDOWS])))
    known, workers = set(around), {found.worker for found in evidence}
    rest = [key for key in files.sampled(limits.steps, workers) if key not in known]
    on_start(len(around) + len(rest))
    history.watched = _tensors_by_worker(history, evidence)
    is_all = reader.read(around, _SHARE_OF_FINDINGS)
    history.watched = {}  # only their values around the findings are plotted
    is_all = reader.read(rest, 1.0) and is_all
    reading.num_steps_read = len(reader.steps)
    _note(reading, files, is_cut=not is_all)
    return reading


@dataclass
class _Reader:
    """Reads files of a run into its history within the limits; `steps` holds the steps read."""

    store: Store
    run: str | None
    history: RunHistory
    limits: ReadLimits
    clock: Callable[[], float]
    began: float
    on_read: Callable[[str], None]
    steps: set[int] = field(default_factory=set)

    def read(self, keys: Iterable[str], share: float) -> bool:
        """Read files within a share of the limits; return whether all were read."""
        left = iter(keys)
        while portion := list(islice(left, _PORTION)):
            is_late = self.clock() - self.began >= share * self.limits.seconds
            is_much = self.history.num_bytes >= share * self.limits.bytes
            if self.steps and (is_late or is_much):
                return False
            own = []
            for file in iter_step_files(self.store, portion):
                if file.index is None or file.index.run == self.run:
                    own.append(file)
                    self.steps.add(file.step)
                self.on_read(file.key)
            for file in merged_by_step(own):
                self.history.add(file)
        return True


def _tensors_by_worker(history: RunHistory, evidence: Sequence[Evidence]) -> dict[str, set[str]]:
    tensors: dict[str, set[str]] = {}
    for found in evidence:
        tensors.setdefault(found.worker, set()).add(watch_finding(history, found))
    return tensors


def current_run_of(store: Store, last_key: str | None = None) -> str | None:
    """Return the RunId in `job.json` or in a folder's last file.

    Unlike `current_run`, it reads at most one index file, and lists none if `last_key` is given.

    Raises:
        StorageError: If the storage fails, except for a missing object.
    """
    run = named_run(store)
    if run is not None:
        return run
    if last_key is None:
        last_key = next((key for key, _ in deque(list_index_files(store), maxlen=1)), None)
    files = iter_step_files(store, [] if last_key is None else [last_key])
    last = next(files, None)
    return None if last is None or last.index is None else last.index.run


def _note(reading: RunReading, files: FilesOfRun, *, is_cut: bool) -> None:
    history = reading.history
    if files.is_cut:
        reading.notes.append(
            f"the search for files took too long: steps after {reading.last_step} are missing"
        )
    if reading.num_steps_read < reading.num_steps:
        why = ", because of the time limit" if is_cut else ""
        reading.notes.append(
            f"{reading.num_steps_read} of {reading.num_steps} saved steps were read, evenly "
            f"over the run and around findings{why}"
        )
    if len(files.by_worker) > 1:
        reading.notes.append(f"curves and heat maps are those of {history.worker}")
    if len(files.by_worker) > MAX_WORKERS:
        reading.notes.append(
            f"{MAX_WORKERS} of {len(files.by_worker)} workers and those of findings were looked at"
        )
    if history.without_statistics:
        reading.notes.append(
            f"{history.without_statistics} files hold no statistics, as those of the original "
            f"client: values of up to {MAX_VALUE_BYTES >> 20} MiB were read, and reductions; "
            "stepwatch.create_trial(path).plot() reads any"
        )
    reading.notes += [f"an index file cannot be read: {text}" for text in history.problems]
    if cut := str(history.cut):
        reading.notes.append(cut)
    if history.left_out_scalars:
        reading.notes.append(f"{len(history.left_out_scalars)} further curves were left out")
