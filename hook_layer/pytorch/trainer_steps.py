"""Steps that begin and end when a trainer says so, see `hook_layer.pytorch.trainer_driver`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.format.modes import ModeKeys
from hook_layer.pytorch.steps import WITHOUT_TRAINING, Pass, StepBounds

__all__ = ["ModeOfPass", "TrainerSteps"]

ModeOfPass: TypeAlias = Callable[[], ModeKeys | None]
"""Returns the mode of a step that a forward pass between two steps begins; None for no step."""


class TrainerSteps(StepBounds):
    """Steps that begin and end when a trainer says so.

    Attributes:
        has_stepped: Whether an optimizer has stepped since the step began.
    """

    def __init__(self, mode_of_pass: ModeOfPass) -> None:
        super().__init__()
        self.has_stepped = False
        self._mode_of_pass = mode_of_pass
        self._announced: ModeKeys | None = None
        self.by_optimizer = self.begins_before_closure = True

    def announce(self, mode: ModeKeys) -> None:
        """Let the next pass begin a step of this mode, or continue the open one."""
        self._announced = mode

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:  # noqa: ARG002
        """Return the role of a forward pass."""
        announced, self._announced = self._announced, None
        self.is_outside_steps = False
        if self.is_open:
            return Pass.CONTINUES
        begun = announced or self._mode_of_pass()
        self.is_outside_steps = begun is None
        self.is_training = begun is not None and begun not in WITHOUT_TRAINING
        return Pass.OUTSIDE_STEPS if begun is None else Pass.BEGINS

    def leaves_losses_out(self, mode: ModeKeys) -> bool:
        """Return whether a loss that is computed now belongs to no step."""
        return not self.is_open or (mode not in WITHOUT_TRAINING and not torch.is_grad_enabled())

    def step_begins(self) -> None:
        """Note that a step began."""
        super().step_begins()
        self.has_stepped = False

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:  # noqa: ARG002
        """Note a step of an optimizer, which does not complete the trainer's step."""
        self.has_stepped = True
        return False
