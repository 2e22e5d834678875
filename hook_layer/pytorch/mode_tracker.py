"""Tracks which forward passes belong to steps, their mode, and whether they train."""

from __future__ import annotations

from hook_layer.core.clock import StepClock
from hook_layer.pytorch.steps import WITHOUT_TRAINING, StepBounds

__all__ = ["ModeTracker"]


class ModeTracker:
    """Tracks which forward passes belong to steps.

    Args:
        clock: Knows the mode.

    Attributes:
        steps: Decides where steps begin and end.
    """

    def __init__(self, clock: StepClock) -> None:
        self.steps = StepBounds()
        self._clock = clock

    @property
    def is_outside_steps(self) -> bool:
        """Whether the newest forward pass belongs to no step."""
        return self.steps.is_outside_steps

    @property
    def is_training(self) -> bool:
        """Whether the newest forward pass can be for training."""
        return self.steps.is_training

    @property
    def is_evaluating(self) -> bool:
        """Whether the mode is one in which no optimizer steps."""
        return self._clock.mode in WITHOUT_TRAINING

    @property
    def ignores_losses(self) -> bool:
        """Whether a loss that is computed now belongs to no step."""
        return self.steps.leaves_losses_out(self._clock.mode)
