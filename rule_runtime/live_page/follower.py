"""Updates the numbers and verdicts of a run from new files only."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

from hook_layer.format.job_file import StopFile
from hook_layer.storage.base import Store
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.engine.outcome import Evidence
from rule_runtime.engine.rule import Rule
from rule_runtime.live_page.run_rules import RunRules
from rule_runtime.reporting.finding_plot import WINDOW, watch_finding
from rule_runtime.reporting.job_configuration import JobConfiguration
from rule_runtime.reporting.job_numbers import MAX_PLOTS, JobNumbers
from rule_runtime.reporting.job_verdicts import JobVerdict, stored_verdicts, verdicts_of
from rule_runtime.reporting.run_history import RunHistory
from rule_runtime.reporting.run_reader import RunReading
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.step_index import StepFile, iter_step_files
from rule_runtime.trial.stop_request import read_stop_request

__all__ = ["RunFollower"]

_REFRESH_S = 30.0
"""Seconds between two reads of collections and `job.json`, which may change."""
_VERDICTS_S = 10.0
"""Seconds between two reads of stored verdicts."""


class RunFollower:
    """Updates the known data of a run on each call.

    Args:
        store: The trial's root.
        rules: The rules to evaluate by displayed name, or the run's; None to show the verdicts that
            others write to `rule-output/`.
        clock: Returns seconds.

    Attributes:
        verdicts: The verdicts to display.
        has_ended: Whether the run has ended, and all of it was read.
    """

    def __init__(
        self,
        store: Store,
        rules: Sequence[tuple[str, Rule]] | RunRules | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        judging = rules.find if isinstance(rules, RunRules) else rules or ()
        self._judge = LiveJudge(store, judging, on_files=self._files_came, stores_verdicts=False)
        self._watched: dict[str, set[str]] = {}
        self._history = RunHistory(store, self._watched)
        self._keys: dict[str, dict[int, str]] = {}
        self._steps: set[int] = set()
        self._found: set[tuple[str, str, int]] = set()
        self._evaluated: list[JobVerdict] = []
        self._stored: list[JobVerdict] = []
        self.verdicts: list[JobVerdict] = []
        self._refreshed_at = self._verdicts_at = clock()
        self._configuration = JobConfiguration.read(store, self._history.kinds, ())
        self._stop: StopFile | None = None
        self.has_ended = False

    def look(self) -> bool:
        """Read new data; return whether there was any.

        Raises:
            StorageError: The storage cannot be read.
        """
        if self.has_ended:
            return False
        if self._clock() - self._refreshed_at >= _REFRESH_S:
            self._refresh()
        is_new = self._judge.look()
        if not is_new and self._is_over():
            self._judge.look(is_over=True)
            self._refresh()
            self.has_ended = is_new = True
        if self._has_new_verdicts(is_new=is_new):
            is_new = True
        if is_new and self._stop is None:
            self._stop = read_stop_request(self._store, self._judge.run)
        self._watch_findings()
        return is_new

    def numbers(self) -> JobNumbers:
        """Return the data to display."""
        reading = RunReading(
            self._judge.run,
            self.has_ended,
            self._history,
            num_steps=len(self._steps),
            num_steps_read=len(self._steps),
            first_step=min(self._steps, default=None),
            last_step=max(self._steps, default=None),
            workers=sorted(self._keys),
            stop=self._stop,
        )
        return JobNumbers.of(self._store.uri, reading, self.verdicts, self._configuration)

    def _files_came(self, files: Sequence[StepFile]) -> None:
        for file in files:
            if file.index is None or file.index.run == self._judge.run:
                self._history.add(file)
            if file.index is not None and file.index.run == self._judge.run:
                self._keys.setdefault(file.worker, {})[file.step] = file.key
                self._steps.add(file.step)

    def _is_over(self) -> bool:
        """Return whether the run ended: its end marker exists, and every file was read.

        A folder of the original client has no `job.json`: it is shown once it has ended.
        """
        marker = read_end_marker(self._store)
        return marker is not None and (not self._steps or marker.run_id == self._judge.run)

    def _refresh(self) -> None:
        self._history.kinds.refresh()
        names = self._history.extremes.names
        self._configuration = JobConfiguration.read(self._store, self._history.kinds, names)
        self._refreshed_at = self._clock()  # after a failure, the next look tries again

    def _has_new_verdicts(self, *, is_new: bool) -> bool:
        """Update the verdicts; return whether they changed."""
        before = self.verdicts
        rules = self._rules if isinstance(self._rules, RunRules) else None
        is_due = self.has_ended or self._clock() - self._verdicts_at >= _VERDICTS_S
        if (self._rules is None or rules is not None) and (is_due or not self._stored):
            self._stored = stored_verdicts(self._store.uri, self._judge.run)
            self._verdicts_at = self._clock()
        if is_new or not before:
            self._evaluated = verdicts_of(self._judge.states)
        self.verdicts = self._stored or self._evaluated
        if rules is not None:
            self.verdicts = rules.shown(self._evaluated, self._stored)
        return self.verdicts != before

    def _watch_findings(self) -> None:
        """Keep the statistics of findings' tensors; earlier ones are read again once."""
        for verdict in self.verdicts:
            found = verdict.evidence
            if found is None or len(self._found) >= MAX_PLOTS:
                continue
            key = (found.worker, found.tensor, found.step)
            if key not in self._found:
                self._found.add(key)
                tensor = watch_finding(self._history, found)
                self._watched.setdefault(found.worker, set()).add(tensor)
                self._look_back(found)
        for (worker, tensor), rows in self._history.rows.items():
            if len(rows) > 2 * WINDOW * len(self._found):
                self._watched.get(worker, set()).discard(tensor)

    def _look_back(self, found: Evidence) -> None:
        keys = self._keys.get(found.worker, {})
        steps = sorted(keys)
        at = bisect_left(steps, found.step)
        near = steps[max(0, at - WINDOW) : at + WINDOW + 1]
        for file in iter_step_files(self._store, [keys[step] for step in near]):
            self._history.watch(file)
