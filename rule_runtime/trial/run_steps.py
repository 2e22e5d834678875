"""The steps of one run, found while they are being saved or afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Store
from rule_runtime.trial.collection_reader import CollectionReader
from rule_runtime.trial.errors import NoMoreData, StepUnavailable
from rule_runtime.trial.run_files import current_run, read_end_marker
from rule_runtime.trial.run_index import StepIndex
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tensor_steps import StepState

__all__ = ["RunSteps"]

_POLL_SECONDS: Final = 2.0


class RunSteps:
    """The steps of one run, their modes and who wrote them.

    Args:
        store: The trial's root.
        range_steps: Global steps to look at, from the first to before the second.
        sleep: Waits a number of seconds.

    Attributes:
        store: The trial's root.
        range_steps: Global steps that are looked at.
        loaded_all_steps: True once the training has ended and all of it was found.
        dynamic_refresh: False to keep queries from looking for new files.
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
        self._run: str | None = None
        self._index: StepIndex | None = None
        self._collection_reader = CollectionReader(store)
        self._mode_to_global: dict[ModeKeys, dict[int, int]] = {}

    # ------------------------------------------------------------------ finding files

    def refresh(self) -> None:
        """Look for files that have come since.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        # The marker is written last: what is listed after it was seen is all.
        has_ended = self._has_ended()
        if self._index is None:
            self._run = current_run(self.store)
            self._index = StepIndex(self.store, self._run, self.range_steps)
        new = self._index.refresh(is_last=has_ended)
        if not self._index.files and self._run is None:
            self._index = None  # nothing told yet which run this is
        for file in new:
            self._add(file)
        self.loaded_all_steps = self.loaded_all_steps or has_ended

    def refresh_data(self) -> None:
        """Look for files that have come since, under the original client's name."""
        self.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:
        """Look for new files unless the training has ended or `dynamic_refresh` is off.

        Args:
            name: Taken for compatibility; all tensors are looked for.
        """
        del name
        if self.dynamic_refresh and not self.loaded_all_steps:
            self.refresh()

    def _has_ended(self) -> bool:
        marker = read_end_marker(self.store)
        return marker is not None and (
            marker.run_id is None or self._run is None or marker.run_id == self._run
        )

    def _add(self, file: StepFile) -> None:
        """Take in a file that has come."""
        if file.index is not None:
            modes = self._mode_to_global.setdefault(file.index.mode, {})
            modes.setdefault(file.index.mode_step, file.step)

    @property
    def _files(self) -> dict[int, dict[str, StepFile]]:
        return {} if self._index is None else self._index.files

    # ------------------------------------------------------------------ workers

    @property
    def num_workers(self) -> int:
        """How many workers write; as many as were seen if nothing says so."""
        if self._index is not None and self._index.num_workers:
            return self._index.num_workers
        for worker in self._index.workers if self._index is not None else ():
            file = self._collection_reader.load(worker)
            if file is not None:
                return file.num_workers
        return max(len(self.workers_seen), 1)

    @property
    def workers_seen(self) -> list[str]:
        """The workers whose files were found so far, sorted."""
        return [] if self._index is None else self._index.workers

    @property
    def worker_set(self) -> set[str]:
        """The workers whose files were found so far."""
        return set(self.workers_seen)

    @property
    def workers_for_global_step(self) -> dict[int, set[str]]:
        """The workers that wrote each global step."""
        return {step: set(files) for step, files in self._files.items()}

    @property
    def last_complete_step(self) -> int:
        """The last global step of which nothing can be missing any more; -1 if there is none."""
        steps = [step for step in self._files if self.is_complete(step)]
        return max(steps, default=-1)

    @property
    def problems(self) -> dict[str, str]:
        """What was wrong with index files that could not be parsed, by key."""
        return {} if self._index is None else dict(self._index.problems)

    def workers(self) -> list[str]:
        """Return the workers that wrote, sorted."""
        self.maybe_refresh()
        return sorted(self.worker_set | set(self._collection_reader.workers()))

    def is_complete(self, global_step: int) -> bool:
        """Tell whether nothing can be missing from a saved step any more.

        Args:
            global_step: The step.
        """
        if self.loaded_all_steps or self._index is None:
            return self.loaded_all_steps
        num_workers = self.num_workers
        has_all = len(self._files.get(global_step, ())) >= num_workers
        return has_all or self._index.passed_step(num_workers) >= global_step

    # ------------------------------------------------------------------ steps and modes

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """Return the saved steps, sorted; of GLOBAL the global steps of all modes.

        Args:
            mode: The mode whose steps are counted.
            show_incomplete_steps: True to see steps that a worker may still write.
        """
        self.maybe_refresh()
        steps = self._all_steps(mode)
        if show_incomplete_steps:
            return sorted(steps)
        return sorted(step for step, global_step in steps.items() if self.is_complete(global_step))

    def modes(self) -> list[ModeKeys]:
        """Return the modes of which steps were saved, without GLOBAL."""
        self.maybe_refresh()
        modes = [mode for mode in self._mode_to_global if mode is not ModeKeys.GLOBAL]
        return sorted(modes, key=lambda mode: int(mode.value))

    def mode(self, global_step: int) -> ModeKeys | None:
        """Return the mode of a global step, None if it was not saved.

        Args:
            global_step: The step.
        """
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Return the step within its mode of a global step, None if it was not saved.

        Args:
            global_step: The step.
        """
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        """Return mode and step within it of a global step, (None, None) if it was not saved.

        Args:
            global_step: The step.
        """
        if global_step not in self._files:
            self.maybe_refresh()
        for file in self._files.get(global_step, {}).values():
            if file.index is not None:
                return file.index.mode, file.index.mode_step
        return None, None

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Return the global step of a step within a mode, None if it was not saved.

        Args:
            mode: The mode.
            mode_step: The step within it.
        """
        if mode is ModeKeys.GLOBAL:
            return mode_step
        if mode_step not in self._mode_to_global.get(mode, {}):
            self.maybe_refresh()
        return self._mode_to_global.get(mode, {}).get(mode_step)

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        """Tell whether a step can be read, may still come, or will never come.

        Args:
            step: The step, counted in `mode`.
            mode: The mode.
        """
        self.maybe_refresh()
        steps = self._all_steps(mode)
        if step in steps:
            is_complete = self.is_complete(steps[step])
            return StepState.AVAILABLE if is_complete else StepState.NOT_YET_AVAILABLE
        if self.loaded_all_steps:
            return StepState.UNAVAILABLE
        is_passed = any(s > step and self.is_complete(g) for s, g in steps.items())
        return StepState.UNAVAILABLE if is_passed else StepState.NOT_YET_AVAILABLE

    def wait_for_steps(
        self, required_steps: Iterable[int], mode: ModeKeys = ModeKeys.GLOBAL
    ) -> None:
        """Wait until steps can be read.

        Args:
            required_steps: The steps, counted in `mode`.
            mode: The mode.

        Raises:
            StepUnavailable: If a step was passed without being saved.
            NoMoreData: If the training ended before a step.
        """
        for step in required_steps:
            while (state := self.has_passed_step(step, mode)) is not StepState.AVAILABLE:
                if state is StepState.UNAVAILABLE:
                    last = max(self._all_steps(mode), default=-1)
                    if self.loaded_all_steps and step >= last:
                        raise NoMoreData(step, mode, last)
                    raise StepUnavailable(step, mode)
                self._sleep(_POLL_SECONDS)

    def _all_steps(self, mode: ModeKeys) -> dict[int, int]:
        """Return the global step of every saved step of a mode."""
        if mode is ModeKeys.GLOBAL:
            return {step: step for step in self._files}
        return self._mode_to_global.get(mode, {})
