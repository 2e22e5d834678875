"""Counts the steps of a run, in total and per mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hook_layer.format.modes import WITHOUT_TRAINING, ModeKeys

__all__ = ["INIT_STEP", "StepClock"]

INIT_STEP: Final = -1


class StepClock:
    """Counts the steps of a run, in total and per mode.

    Attributes:
        mode: Mode of the current and later steps.
        step: Global step, counted over all modes from 0; -1 before the first.
        mode_steps: Step of each mode; GLOBAL has the global step.
    """

    __slots__ = ("_last_resumed", "mode", "mode_steps", "step")

    def __init__(self) -> None:
        self.mode = ModeKeys.GLOBAL
        self.step = self._last_resumed = INIT_STEP
        self.mode_steps = {ModeKeys.GLOBAL: INIT_STEP}

    @property
    def mode_step(self) -> int:
        """Number of the current step in its mode."""
        return self.mode_steps[self.mode]

    @property
    def is_evaluating(self) -> bool:
        """Whether the mode is one in which no optimizer steps."""
        return self.mode in WITHOUT_TRAINING

    @property
    def num_steps(self) -> int:
        """Number of steps counted here, without those of an interrupted run."""
        return self.step - self._last_resumed

    def set_mode(self, mode: ModeKeys) -> None:
        """Count the next steps in a mode."""
        self.mode = mode
        self.mode_steps.setdefault(mode, INIT_STEP)

    def count(self) -> None:
        """Count a step of the current mode."""
        self.step += 1
        self.mode_steps[self.mode] += 1
        self.mode_steps[ModeKeys.GLOBAL] = self.step

    def count_back(self) -> None:
        """Undo the last count."""
        self.step -= 1
        self.mode_steps[self.mode] -= 1
        self.mode_steps[ModeKeys.GLOBAL] = self.step

    def resume_after(self, step: int, mode_steps: Mapping[ModeKeys, int]) -> None:
        """Continue the step numbers of an interrupted run."""
        self.step = self._last_resumed = step
        self.mode_steps |= {**mode_steps, ModeKeys.GLOBAL: step}
