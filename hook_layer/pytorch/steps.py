"""Which forward passes make a step.

Each forward pass of a registered model does, unless optimisers are registered. Then a step is one
step of these optimisers: it begins with the first forward pass behind the one before, and is
complete when every optimiser has stepped at least once, or was about to and left out by a
`GradScaler`. So all passes whose gradients are accumulated are one step, and so are those of a loop
with several models or optimisers. A pass that cannot train belongs to no step then: without
gradients, or of a model in evaluation mode. In the modes EVAL and PREDICT no optimiser steps, and
each forward pass is a step again.

A forward pass that is repeated within the backward pass (activation checkpointing) never counts.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Any, Final
from weakref import WeakSet

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from hook_layer.pytorch.calls import tensors_in

__all__ = ["Pass", "StepBounds", "is_recomputing"]

logger = logging.getLogger("stepwatch")

_WITHOUT_TRAINING: Final = (ModeKeys.EVAL, ModeKeys.PREDICT)
_LONG_STEP: Final = 1000


class Pass(Enum):
    """What a forward pass is to the steps."""

    BEGINS = auto()
    CONTINUES = auto()
    ASIDE = auto()


class StepBounds:
    """Tells where steps begin and end.

    Attributes:
        is_aside: Whether the newest forward pass belongs to no step.
        is_training: Whether it can be one of training.
    """

    def __init__(self) -> None:
        self.is_aside = self.is_training = False
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        self._stepped: set[int] = set()  # in this step, and in the last one that any did in
        self._stepped_before: set[int] = set()
        self._num_optimizer_steps = 0
        self._is_open = self._trains_in_evaluation = self._was_in_evaluation = False

    @property
    def by_optimizer(self) -> bool:
        """Whether a step is one of the optimisers'."""
        return len(self._optimizers) > 0

    def add(self, optimizer: object) -> None:
        """Make a step one of this optimiser, and of the others that were added.

        Raises:
            HookConfigurationError: It is no optimiser.
        """
        plain = _unwrapped(optimizer)
        if not isinstance(plain, Optimizer):
            raise HookConfigurationError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer")
        self._optimizers.add(plain)

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:
        """Return what the forward pass that is about to begin is to the steps."""
        self.is_training = mode not in _WITHOUT_TRAINING and self._can_train(model, inputs)
        self.is_aside = False
        if mode in _WITHOUT_TRAINING or not self._optimizers:
            return Pass.BEGINS
        if not self.is_training:
            self.is_aside = True
            return Pass.ASIDE
        return Pass.CONTINUES if self._is_open else Pass.BEGINS

    def leaves_losses_out(self, mode: ModeKeys) -> bool:
        """Tell whether a loss that is computed now belongs to no step."""
        if self.is_aside:
            return True
        if mode in _WITHOUT_TRAINING or not self._optimizers:
            return False
        return not torch.is_grad_enabled()

    def step_begins(self) -> None:
        """Note that a step began."""
        if self._stepped:
            self._stepped_before, self._stepped = self._stepped, set()
        self._num_optimizer_steps = 0
        self._is_open = True

    def step_ends(self) -> None:
        """Note that the step ended, complete or not: the next pass begins another one."""
        self._is_open = False

    def optimizer_steps(self, optimizer: Optimizer) -> None:
        """Note that an optimiser is about to step: so the pass before was one of training."""
        if self._was_in_evaluation and not self._trains_in_evaluation:
            self._trains_in_evaluation = True
            if optimizer in self._optimizers and not self._is_open:
                logger.warning(
                    "the model is trained in evaluation mode (model.eval()): what it has trained up"
                    " to now makes no step, what it trains from now on does"
                )

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note that an optimiser has stepped, and tell whether that completes the step.

        By default it does once all have that stepped in the step before.
        """
        if not self._optimizers:
            self._stepped.add(id(optimizer))
            return self._stepped_before <= self._stepped
        if not self._is_open or optimizer not in self._optimizers:
            return False
        self._stepped.add(id(optimizer))
        self._num_optimizer_steps += 1
        missing = [other for other in self._optimizers if id(other) not in self._stepped]
        if not missing:
            self._is_open = False
        elif self._num_optimizer_steps == _LONG_STEP:
            logger.warning(
                "a step lasts until every registered optimiser has stepped; for %d steps of others "
                "this one has not: %.300s",
                _LONG_STEP,
                missing[0],
            )
        return not missing

    def _can_train(self, model: nn.Module, inputs: Any) -> bool:
        # A checkpoint runs its part without gradients first, with inputs that require some.
        if not torch.is_grad_enabled() and not any(t.requires_grad for t in tensors_in(inputs)):
            self._was_in_evaluation = False
            return False
        self._was_in_evaluation = not model.training
        return model.training or self._trains_in_evaluation


def is_recomputing() -> bool:
    """Tell whether a forward pass is repeated for the backward pass that this thread is in."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001 - no public way


def _unwrapped(optimizer: object) -> object:
    # Lightning and Accelerate put wrappers around optimisers, whose steps torch does not see.
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer
