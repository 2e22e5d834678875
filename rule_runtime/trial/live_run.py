"""Finds the files and steps of one run, during or after training."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import index_key
from hook_layer.storage.base import Store
from rule_runtime.trial.collection_reader import CollectionReader
from rule_runtime.trial.errors import NoMoreData, StepUnavailable
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.refreshing import refresh
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.run_index import StepIndex
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tensor_steps import StepState, check_step

__all__ = ["LiveRun"]

_POLL_SECONDS: Final = 2.0
_SECONDS_BETWEEN_WARNINGS: Final = 60.0

_logger: Final = logging.getLogger("stepwatch")


class LiveRun:
    """The files and steps of one run, and which steps are complete.

    A step is complete once every worker wrote it or a later step. All steps are complete once the
    training ended. A worker that stops writing would block all later steps: when more than
    `SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW` steps are incomplete, the older half counts as complete.

    Attributes:
        store: The trial's root.
        range_steps: Global steps to read.
        loaded_all_steps: True once the training ended and all its files were found.
        dynamic_refresh: False to stop queries from looking for new files.
        event_file_retries: Number of retries for an event file that does not exist yet.
    """

    def __init__(
        self,
        store: Store,
        *,
        range_steps: tuple[int | None, int | None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.range_steps = range_steps
        self.loaded_all_steps = False
        self.dynamic_refresh = True
        self._sleep = sleep
        self._end_delay = _setting("SMDEBUG_TRAINING_END_DELAY_REFRESH", 1)
        self._window = _setting("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", 1000)
        self.event_file_retries = _setting("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", 100)
        self._index = self._new_index()
        self._collection_reader = CollectionReader(store)
        self._num_declared: int | None = None
        self._given_up = -1
        self._mode_to_global: dict[ModeKeys, dict[int, int]] = {}
        # The name is the original's, because published rules read it.
        self._global_to_mode: dict[int, tuple[ModeKeys, int]] = {}

    # ------------------------------------------------------------------ finding files

    def refresh(self) -> None:
        """Look for new files with one listing."""
        self._look(may_wait=False)

    def refresh_data(self) -> None:
        """Look for new files; the original client's name for `refresh`."""
        self.refresh()

    def refresh_tensor(self, tname: str, steps: object = None) -> None:
        """Look for new files."""
        del tname, steps
        self.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:
        """Look for new files, unless all are known or `dynamic_refresh` is off.

        After the training ended, files may still be in transit: it waits for
        `SMDEBUG_TRAINING_END_DELAY_REFRESH` seconds (default 1) and looks once more.
        """
        del name
        if self.dynamic_refresh and not self.loaded_all_steps:
            self._look(may_wait=True)

    def wait_for_files(self) -> None:
        """Wait a moment and look for new files, also within `no_refresh`."""
        self._sleep(_POLL_SECONDS)
        with refresh(self):
            self.maybe_refresh()

    def _look(self, *, may_wait: bool) -> None:
        # The marker is written last: a listing after it is almost always complete.
        marker = read_end_marker(self.store)
        is_last = marker is not None and self._is_own(marker)
        self._take_in(self._index.refresh(is_last=is_last))
        if marker is None or self.loaded_all_steps or not self._is_own(marker):
            return
        _logger.info("Training has ended, will refresh one final time in %s sec.", self._end_delay)
        # Do not wait if everything was found already.
        if may_wait and not self._index.has_all(marker.sequences):
            self._sleep(self._end_delay)
            self._take_in(self._index.refresh(is_last=True))
        self.loaded_all_steps = True
        _logger.info("Loaded all steps")

    def _new_index(self) -> StepIndex:
        return StepIndex(self.store, self.range_steps)

    def _take_in(self, files: Iterable[StepFile]) -> None:
        for file in files:
            self._add(file)
        self._num_declared = None
        self._give_up_steps()

    def _is_own(self, marker: EndMarker) -> bool:
        """Return whether a marker ends this run, not an earlier one in the same folder."""
        run = self._index.run
        return None in {marker.run_id, run} or marker.run_id == run

    def _add(self, file: StepFile) -> None:
        if file.index is not None:
            mode, mode_step = file.index.mode, file.index.mode_step
            self._mode_to_global.setdefault(mode, {}).setdefault(mode_step, file.step)
            self._global_to_mode.setdefault(file.step, (mode, mode_step))

    @property
    def has_begun(self) -> bool:
        """True once any file of a run was found."""
        return self._index.is_open or bool(self.worker_set)

    @property
    def _files(self) -> dict[int, dict[str, StepFile]]:
        return self._index.files

    # ------------------------------------------------------------------ steps

    def steps(self, mode: Mode = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the saved steps, sorted; for GLOBAL the global steps of all modes.

        Args:
            mode: The mode whose steps are counted.
            show_incomplete_steps: True to include steps that a worker may still write.
        """
        mode = as_mode(mode)
        self.maybe_refresh()
        return self.complete_steps(self._all_steps(mode), show_incomplete_steps)

    def complete_steps(self, steps: Mapping[int, int], show_incomplete: bool) -> list[int]:
        """Return the complete steps, sorted; `steps` holds pairs of step and global step."""
        if show_incomplete or self.loaded_all_steps:
            return sorted(steps)
        is_complete = self.completeness()
        return sorted(step for step, global_step in steps.items() if is_complete(global_step))

    def modes(self) -> list[ModeKeys]:
        """Return the modes that have saved steps, without GLOBAL."""
        self.maybe_refresh()
        modes = [mode for mode in self._mode_to_global if mode is not ModeKeys.GLOBAL]
        return sorted(modes, key=lambda mode: int(mode.value))

    def mode(self, global_step: int) -> ModeKeys | None:
        """Return the mode of a global step, None if it was not saved."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Return the step within its mode of a global step, None if it was not saved."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        """Return mode and step within it of a global step, (None, None) if it was not saved."""
        if global_step not in self._global_to_mode:
            self.maybe_refresh()
        return self._global_to_mode.get(global_step, (None, None))

    def global_step(self, mode: Mode, mode_step: int) -> int | None:
        """Return the global step of a step within a mode, None if it was not saved."""
        mode = as_mode(mode)
        if mode is ModeKeys.GLOBAL:
            return mode_step
        if mode_step not in self._mode_to_global.get(mode, {}):
            self.maybe_refresh()
        return self._mode_to_global.get(mode, {}).get(mode_step)

    def has_passed_step(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> StepState:
        """Return whether a step can be read, may still come, or will never come.

        Raises:
            TypeError: If the step is not a number.
        """
        check_step(step)
        mode = as_mode(mode)
        self.maybe_refresh()
        steps = self._all_steps(mode)
        if step in steps:
            is_all_there = self.is_complete(steps[step])
            return StepState.AVAILABLE if is_all_there else StepState.NOT_YET_AVAILABLE
        if self.loaded_all_steps:
            return StepState.UNAVAILABLE
        is_complete = self.completeness()
        is_passed = any(later > step and is_complete(g) for later, g in steps.items())
        return StepState.UNAVAILABLE if is_passed else StepState.NOT_YET_AVAILABLE

    def wait_for_steps(self, required_steps: Iterable[int], mode: Mode = ModeKeys.GLOBAL) -> None:
        """Wait until steps can be read, also within `no_refresh`.

        While no file at all exists, it logs a warning at once and every minute.

        Raises:
            StepUnavailable: If a step was passed without being saved.
            NoMoreData: If the training ended before a step.
        """
        mode = as_mode(mode)
        with refresh(self):
            for step in required_steps:
                self._wait_for(step, mode)

    def _wait_for(self, step: int, mode: ModeKeys) -> None:
        waited = 0.0
        while (state := self.has_passed_step(step, mode)) is not StepState.AVAILABLE:
            if state is StepState.UNAVAILABLE:
                last = max(self._all_steps(mode), default=-1)
                if self.loaded_all_steps and step >= last:
                    raise NoMoreData(step, mode, last)
                raise StepUnavailable(step, mode)
            if not self.has_begun and waited % _SECONDS_BETWEEN_WARNINGS < _POLL_SECONDS:
                _logger.warning(
                    "nothing was found at %s so far, while step %s of mode %s is waited for; "
                    "is the path right?",
                    self.store.uri,
                    step,
                    mode.name,
                )
            self._sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    def _all_steps(self, mode: ModeKeys) -> dict[int, int]:
        """Return the global step of every saved step of a mode."""
        if mode is ModeKeys.GLOBAL:
            return {step: step for step in self._files}
        return self._mode_to_global.get(mode, {})

    # ------------------------------------------------------------------ workers

    @property
    def num_workers(self) -> int:
        """The number of writing workers; the number of seen workers if no file states it."""
        if self._index.num_workers:
            return self._index.num_workers
        if self._num_declared is None:
            self._num_declared = self._collection_reader.num_workers(sorted(self.worker_set)) or 0
        return self._num_declared or max(len(self.workers_seen), 1)

    @property
    def workers_seen(self) -> list[str]:
        """The workers whose files were found so far, sorted."""
        return self._index.workers

    @property
    def worker_set(self) -> set[str]:
        """The workers known so far."""
        return {*self.workers_seen, *self._collection_reader.workers_seen}

    @property
    def workers_for_global_step(self) -> dict[int, set[str]]:
        """The workers that wrote each global step."""
        return {step: set(files) for step, files in self._files.items()}

    def workers(self) -> list[str]:
        """Return the workers that wrote, sorted."""
        self.maybe_refresh()
        if len(self.worker_set) < self.num_workers and not self.loaded_all_steps:
            self._collection_reader.workers()
        return sorted(self.worker_set)

    # ------------------------------------------------------------------ what may be missing

    @property
    def problems(self) -> dict[str, str]:
        """Problems of index files that could not be parsed, by key."""
        return dict(self._index.problems)

    @property
    def last_complete_step(self) -> int:
        """The last complete global step; -1 if there is none."""
        return max(filter(self.completeness(), self._files), default=-1)

    @property
    def last_index_token(self) -> str | None:
        """Key of the last index file of the last complete step, None if there is none.

        The original lists only later files, and loses files that arrive late. Here the token only
        shows the progress of the run.
        """
        workers, step = self.worker_set, self.last_complete_step
        return index_key(step, max(workers)) if workers and step >= 0 else None

    def is_complete(self, global_step: int) -> bool:
        """Return whether no file of a saved step can be missing any more."""
        return self.completeness()(global_step)

    def completeness(self) -> Callable[[int], bool]:
        """Return a function that tests whether a global step is complete, as known now."""
        if self.loaded_all_steps or not self._files:
            is_loaded = self.loaded_all_steps
            return lambda _: is_loaded
        files, num_workers = self._files, self.num_workers
        passed = max(self._index.passed_step(num_workers), self._given_up)
        return lambda step: passed >= step or len(files.get(step, ())) >= num_workers

    def has_gone_on(self, file: StepFile) -> bool:
        """Return whether a worker wrote all files of one of its steps."""
        return self.loaded_all_steps or self._index.last_step_of(file.worker) > file.step

    def _give_up_steps(self) -> None:
        """Mark steps as complete that waited too long for a worker."""
        if self.loaded_all_steps or len(self._files) <= self._window:
            return
        is_complete = self.completeness()
        incomplete = sorted(step for step in self._files if not is_complete(step))
        if len(incomplete) > self._window:
            self._given_up = incomplete[len(incomplete) // 2 - 1]
            _logger.info(
                "Waiting for: %s Steps. INCOMPLETE_STEP_WAIT_WINDOW: %s. "
                "Marking the steps up to %s as complete.",
                len(incomplete),
                self._window,
                self._given_up,
            )


def _setting(name: str, default: int) -> int:
    """Return an environment variable that the original client also reads."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name}={text[:40]!r} must be a whole number of 0 or more")
    return int(text)
