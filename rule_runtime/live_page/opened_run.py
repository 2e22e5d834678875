"""Follows a run that a browser shows: its columns, verdicts and end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from hook_layer.format.errors import FormatError
from hook_layer.storage.base import StorageError, Store
from rule_runtime.engine.rule import Rule
from rule_runtime.live_page.follower import RunFollower
from rule_runtime.live_page.run_columns import RunColumns
from rule_runtime.live_page.run_rules import RunRules
from rule_runtime.reporting.job_verdicts import JobVerdict, stored_verdicts
from rule_runtime.reporting.run_reader import current_run_of
from rule_runtime.reporting.tensor_kinds import TensorKinds
from rule_runtime.reporting.value_statistics import statistics_of_values
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.step_index import StepFile, iter_step_files, list_index_files

__all__ = ["OpenedRun", "RulesOf"]

RulesOf = Callable[[Store], Sequence[tuple[str, Rule]] | RunRules]
"""Returns the rules to evaluate on a run."""

_STRIDES: Final = (64, 8, 1)
"""Files are read in this order, so that charts show the whole run early."""
_STEPS_LOOKED_BACK: Final = 100
"""Steps before the newest one that are searched for files of slower workers."""
_VERDICTS_S: Final = 2.0
"""Seconds between two reads of stored verdicts and collections."""
_PORTION_S: Final = 0.2
"""Seconds of reading after which the page gets what was read."""
_MAX_PROBLEMS: Final = 5


class OpenedRun:
    """The data of one run, updated by each call of `refresh`.

    Args:
        store: The trial's root.
        rules: Returns the rules to evaluate.
        are_named: Whether they are evaluated although the run has stored verdicts.
        clock: Returns seconds.

    Attributes:
        lock: Held while the data changes.
        version: Increases with each change.
        run: RunId of the run; None before it began, and for the original client.
        columns: The statistics of its tensors.
        kinds: The kinds of its tensors.
        workers: Its workers, by the names of its files.
        wanted: The workers whose files are read; empty for the first one.
        verdicts: Verdicts of rules, findings first.
        with_values: Step, worker and key of index files that name values.
        problem: Why the storage cannot be read; empty if it can.
        problems: Why some index files cannot be read.
    """

    def __init__(
        self,
        store: Store,
        rules: RulesOf,
        *,
        are_named: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._rules = rules
        self._are_named = are_named
        self._clock = clock
        self.lock = threading.RLock()
        self._refreshing = threading.Lock()
        self.version = 0
        self._begin(None)

    def _begin(self, run: str | None) -> None:
        self.run = run
        self.columns = RunColumns()
        self.kinds = TensorKinds(self.store)
        self.workers: list[str] = []
        self.wanted: set[str] = set()
        self.verdicts: list[JobVerdict] = []
        self.problem = ""
        self.problems: list[str] = []
        self.has_ended = False
        self.num_unread = 0
        self.last_step = -1
        self.steps: set[int] = set()
        self.with_values: list[tuple[int, str, str]] = []
        self._seen: set[str] = set()
        self._unread: dict[str, str] = {}
        self._follower: RunFollower | None = None
        self._evaluation: threading.Thread | None = None
        self._evaluation_problem = ""
        self._verdicts_problem = ""
        self._verdicts_at = -_VERDICTS_S

    def refresh(self) -> bool:
        """Read new data for a moment; return whether anything changed. It never raises."""
        with self._refreshing:
            before = self.version, self.problem
            try:
                self._find_run()
                self._find_files()
                self._read_files()
                self._try_verdicts()
                self.problem = self._verdicts_problem or self._evaluation_problem
            except (StorageError, FormatError, ValueError) as error:
                self.problem = str(error)
            if self.problem != before[1]:
                self.version += 1
            return before[0] != self.version

    def has(self, workers: Sequence[str]) -> None:
        """Read the files of some workers, too."""
        with self.lock:
            self.wanted |= set(workers) & set(self.workers)

    @property
    def is_evaluating(self) -> bool:
        """Whether rules are being evaluated."""
        return self._evaluation is not None and self._evaluation.is_alive()

    def _evaluate(self, follower: RunFollower) -> None:
        try:
            follower.look()
            self._evaluation_problem = ""
        except (StorageError, FormatError, ValueError) as error:
            self._evaluation_problem = str(error)

    def _find_run(self) -> None:
        run = current_run_of(self.store)
        if run != self.run:
            with self.lock:
                self._begin(run)
                self.version += 1

    def _find_files(self) -> None:
        first = max(-1, self.last_step - _STEPS_LOOKED_BACK)
        found = {
            key: name
            for key, name in list_index_files(self.store, after_step=first)
            if key not in self._seen
        }
        with self.lock:
            for key, name in found.items():
                self._seen.add(key)
                self._unread[key] = name.worker
                self.steps.add(name.step)
            self.workers = sorted({*self.workers, *(name.worker for name in found.values())})
            if not self.wanted and self.workers:
                self.wanted = {self.workers[0]}

    def _read_files(self) -> None:
        began = self._clock()
        unread = [key for key, worker in self._unread.items() if worker in self.wanted]
        ordered = dict.fromkeys(key for stride in _STRIDES for key in unread[::stride])
        self.num_unread = len(ordered)
        portion: list[str] = []
        for key in ordered:
            portion.append(key)
            if len(portion) == 8 or self.num_unread == len(portion):  # noqa: PLR2004 - read ahead
                self._read(portion)
                self.num_unread -= len(portion)
                portion = []
                if self._clock() - began > _PORTION_S:
                    return

    def _read(self, keys: Sequence[str]) -> None:
        for file in iter_step_files(self.store, keys):
            with self.lock:
                self._add(file)
        with self.lock:
            for key in keys:
                self._unread.pop(key, None)
            self.version += 1

    def _add(self, file: StepFile) -> None:
        index = file.index
        if index is None:
            self.problems += [file.problem or file.key][: _MAX_PROBLEMS - len(self.problems)]
            return
        if index.run != self.run:
            self.steps.discard(file.step)
            return
        if index.locations:
            self.with_values.append((file.step, file.worker, file.key))
        block = index.statistics
        if block is None or not len(block.tensors):
            block, _ = statistics_of_values(self.store, index)
        if block is not None:
            self.last_step = max(self.last_step, file.step)
            group = self.kinds.group(block.tensors)
            mode = index.mode.name
            self.columns.add(file, mode, group, block)

    def _try_verdicts(self) -> None:
        is_due = self._clock() - self._verdicts_at >= _VERDICTS_S
        if self.num_unread or not (is_due or self._follower):
            return  # charts come first
        try:
            self._find_verdicts(is_due=is_due)
        except (StorageError, FormatError, ValueError) as error:
            self._verdicts_problem = str(error)
        else:
            if is_due:  # a problem stays until it is known to be solved
                self._verdicts_problem = ""

    def _find_verdicts(self, *, is_due: bool) -> None:
        """Read stored verdicts; without any, evaluate the rules of the run."""
        verdicts, had_ended = self.verdicts, self.has_ended
        if is_due:
            self._verdicts_at = self._clock()
            marker = read_end_marker(self.store)
            self.has_ended = marker is not None and marker.run_id in {self.run, None}
            verdicts = stored_verdicts(self.store.uri, self.run)
            if not had_ended:
                self.kinds.refresh()
        if self._follower is None and (self._are_named or not verdicts):
            self._follower = RunFollower(self.store, self._rules(self.store))
        if self._follower is not None:
            if not self.is_evaluating:
                # Evaluating many files takes long: it delays neither charts nor the server's end.
                work = (self._follower,)
                self._evaluation = threading.Thread(target=self._evaluate, args=work, daemon=True)
                self._evaluation.start()
            verdicts = self._follower.verdicts
        if verdicts != self.verdicts or had_ended != self.has_ended:
            with self.lock:
                self.verdicts = verdicts
                self.version += 1
