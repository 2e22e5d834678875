"""The steps of one run, found while they are being saved or afterwards."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Store
from rule_runtime.trial.errors import NoMoreData, StepUnavailable
from rule_runtime.trial.live_run import POLL_SECONDS, LiveRun
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.refreshing import refresh
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tensor_steps import StepState, check_step

__all__ = ["RunSteps"]

_SECONDS_BETWEEN_WARNINGS: Final = 60.0

_logger: Final = logging.getLogger("stepwatch")


class RunSteps(LiveRun):
    """The steps of one run and their modes.

    Args:
        store: The trial's root.
        range_steps: Global steps to look at, from the first to before the second.
        sleep: Waits a number of seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        range_steps: tuple[int | None, int | None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(store, range_steps=range_steps, sleep=sleep)
        self._mode_to_global: dict[ModeKeys, dict[int, int]] = {}
        # Under the original's name, because published rules read it.
        self._global_to_mode: dict[int, tuple[ModeKeys, int]] = {}

    def _add(self, file: StepFile) -> None:
        if file.index is not None:
            mode, mode_step = file.index.mode, file.index.mode_step
            self._mode_to_global.setdefault(mode, {}).setdefault(mode_step, file.step)
            self._global_to_mode.setdefault(file.step, (mode, mode_step))

    def steps(self, mode: Mode = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the saved steps, sorted; of GLOBAL the global steps of all modes.

        Args:
            mode: The mode whose steps are counted.
            show_incomplete_steps: True to see steps that a worker may still write.
        """
        mode = as_mode(mode)
        self.maybe_refresh()
        steps = self._all_steps(mode)
        if show_incomplete_steps or self.loaded_all_steps:
            return sorted(steps)
        is_complete = self.completeness()
        return sorted(step for step, global_step in steps.items() if is_complete(global_step))

    def modes(self) -> list[ModeKeys]:
        """Return the modes that have saved steps, without GLOBAL."""
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
        if global_step not in self._global_to_mode:
            self.maybe_refresh()
        return self._global_to_mode.get(global_step, (None, None))

    def global_step(self, mode: Mode, mode_step: int) -> int | None:
        """Return the global step of a step within a mode, None if it was not saved.

        Args:
            mode: The mode.
            mode_step: The step within it.
        """
        mode = as_mode(mode)
        if mode is ModeKeys.GLOBAL:
            return mode_step
        if mode_step not in self._mode_to_global.get(mode, {}):
            self.maybe_refresh()
        return self._mode_to_global.get(mode, {}).get(mode_step)

    def has_passed_step(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> StepState:
        """Return whether a step can be read, may still come, or will never come.

        Args:
            step: The step, counted in `mode`.
            mode: The mode.

        Raises:
            TypeError: If the step is no number.
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

        While nothing at all is found, a warning is logged at once and every minute.

        Args:
            required_steps: The steps, counted in `mode`.
            mode: The mode.

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
            if not self.has_begun and waited % _SECONDS_BETWEEN_WARNINGS < POLL_SECONDS:
                _logger.warning(
                    "nothing was found at %s so far, while step %s of mode %s is waited for; "
                    "is the path right?",
                    self.store.uri,
                    step,
                    mode.name,
                )
            self._sleep(POLL_SECONDS)
            waited += POLL_SECONDS

    def _all_steps(self, mode: ModeKeys) -> dict[int, int]:
        """Return the global step of every saved step of a mode."""
        if mode is ModeKeys.GLOBAL:
            return {step: step for step in self._files}
        return self._mode_to_global.get(mode, {})
