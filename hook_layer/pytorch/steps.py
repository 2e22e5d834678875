"""Decides which forward passes make a step."""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Any, Final
from weakref import ReferenceType, WeakSet, ref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import tensors_in

__all__ = ["WITHOUT_TRAINING", "Pass", "StepBounds", "is_recomputing"]

logger = logging.getLogger("stepwatch")

WITHOUT_TRAINING: Final = (ModeKeys.EVAL, ModeKeys.PREDICT)
"""Modes in which no optimiser steps."""
_PATIENCE: Final = 10  # steps, for each registered optimiser
_MOST_WRAPPERS: Final = 8
_ADVISED_AFTER: Final = 5  # steps of an optimiser


class Pass(Enum):
    """What a forward pass is to the steps.

    `BEGINS_ANEW`: it begins the step that is open once more, for what came before was for others.
    """

    BEGINS = auto()
    BEGINS_ANEW = auto()
    CONTINUES = auto()
    OUTSIDE_STEPS = auto()


class StepBounds:
    """Decides where steps begin and end.

    Each forward pass of a registered model is a step, unless optimisers are registered. Then a step
    begins with the first pass after the one before, and is complete when every optimiser has
    stepped, or was about to and a `GradScaler` skipped it. Passes that cannot train belong to no
    step then: without gradients, or of a model in evaluation mode. Steps do not wait forever for an
    optimiser. Another one that trains its parameters replaces it if it is gone, and it is left out
    if it never steps. In the modes EVAL and PREDICT each pass is a step.

    Attributes:
        is_outside_steps: Whether the newest forward pass belongs to no step.
        is_training: Whether it can be one of training.
        is_open: Whether a step began and did not end.
        by_optimizer: Whether a step is one of the optimisers'.
        begins_before_closure: Whether a step has begun before an optimizer calls the closure that
            has its passes.
        trains_without_gradient: Whether the optimizers step though no gradients are computed, so
            that a forward pass without gradients counts as one of training.
    """

    def __init__(self) -> None:
        self.is_outside_steps = self.is_training = self.trains_without_gradient = False
        self.is_open = self.by_optimizer = self.begins_before_closure = False
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        # By each of them, as numbers: torch swaps no parameter that has weak references.
        self._trained: dict[int, frozenset[int]] = {}
        # In this step, and in the last one that any did in. By number: some may have no hash.
        self._stepped: dict[int, ReferenceType[Optimizer]] = {}
        self._stepped_before: dict[int, ReferenceType[Optimizer]] = {}
        self._num_optimizer_steps = self._num_passes = self._num_shared = 0
        self._trains_in_evaluation = self._was_in_evaluation = False

    @property
    def knows_optimizers(self) -> bool:
        """Whether it decides by itself which optimisers count."""
        return self.by_optimizer

    def others_stepped(self) -> None:
        """Note that an optimizer has stepped that trains none of our parameters."""

    def add(self, optimizer: object) -> None:
        """Make a step one of this optimiser, and of the others that were added.

        Raises:
            HookConfigurationError: It is no optimiser.
        """
        plain = _unwrapped(optimizer)
        if not isinstance(plain, Optimizer):
            raise HookConfigurationError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer")
        self.by_optimizer = True
        alive = {id(other) for other in self._optimizers}
        for key in self._sharing(plain) - alive:
            del self._trained[key]
        self._optimizers.add(plain)
        self._trained[id(plain)] = frozenset(map(id, parameters_of(plain)))

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:
        """Return what the forward pass that is about to begin is to the steps."""
        self.is_training = mode not in WITHOUT_TRAINING and self._can_train(model, inputs)
        self.is_outside_steps = False
        if mode in WITHOUT_TRAINING or not self.by_optimizer:
            self._num_passes += self.is_training
            return Pass.BEGINS
        if not self.is_training:
            self.is_outside_steps = True
            return Pass.OUTSIDE_STEPS
        return Pass.CONTINUES if self.is_open else Pass.BEGINS

    def leaves_losses_out(self, mode: ModeKeys) -> bool:
        """Return whether a loss that is computed now belongs to no step."""
        if self.is_outside_steps:
            return True
        if mode in WITHOUT_TRAINING or not self.by_optimizer:
            return False
        return not torch.is_grad_enabled()

    def step_begins(self) -> None:
        """Note that a step began."""
        if self._stepped:
            self._stepped_before, self._stepped = self._stepped, {}
        self._num_optimizer_steps = 0
        self.is_open = True

    def step_ends(self) -> None:
        """Note that the step ended, complete or not: the next pass begins another one."""
        self.is_open = False

    def optimizer_steps(self, optimizer: Optimizer) -> None:
        """Note that an optimiser is about to step: so the pass before was one of training."""
        if self._was_in_evaluation and not self._trains_in_evaluation:
            self._trains_in_evaluation = True
            if optimizer in self._optimizers and not self.is_open:
                logger.warning(
                    "the model trained in evaluation mode (model.eval()); earlier passes "
                    "are not steps, passes from now on are"
                )

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note that an optimiser of our parameters has stepped; does that complete the step?

        By default it does once all have that stepped in the step before.
        """
        if not self.by_optimizer:
            self._advise()
            self._stepped[id(optimizer)] = ref(optimizer)
            return self._have_all_stepped()
        if not self.is_open:
            return False
        is_registered = optimizer in self._optimizers
        sharing = set() if is_registered else self._sharing(optimizer)
        if not is_registered and not sharing:
            return False
        self._num_optimizer_steps += 1
        is_patient = self._num_optimizer_steps < _PATIENCE * len(self._trained)
        if not is_registered and not self._takes_over(optimizer, sharing, is_patient=is_patient):
            return False
        self._stepped[id(optimizer)] = ref(optimizer)
        missing = [other for other in self._optimizers if id(other) not in self._stepped]
        if missing and not is_patient:
            self._give_up(missing)
            missing = []
        self.is_open = bool(missing)
        return not missing

    def _have_all_stepped(self) -> bool:
        """Return whether all have that did in the step before, but for those that are gone."""
        before = self._stepped_before.items()
        return all(key in self._stepped or known() is None for key, known in before)

    def _advise(self) -> None:
        """Log once that the script's idea of a step is likely to be another one."""
        self._num_shared += self._num_passes > 1
        if self._num_shared == _ADVISED_AFTER and self._num_passes > 1:
            logger.warning(
                "the model is called %d times per optimizer step, and each call counts as "
                "a step; hook.register_optimizer(optimizer) makes them one step",
                self._num_passes,
            )
        self._num_passes = 0

    def _sharing(self, optimizer: Optimizer) -> set[int]:
        """Return the ids of registered optimisers that train some of its parameters."""
        own = set(map(id, parameters_of(optimizer)))
        return {key for key, known in self._trained.items() if known & own}

    def _takes_over(self, optimizer: Optimizer, sharing: set[int], *, is_patient: bool) -> bool:
        """Let an optimiser take the place of those that are gone, or are waited for since long."""
        alive = {id(other): other for other in self._optimizers}
        replaced = {
            key for key in sharing if key not in alive or not (is_patient or key in self._stepped)
        }
        if not replaced:
            return False
        for key in replaced:
            del self._trained[key]
            if key in alive:
                self._optimizers.remove(alive[key])
        self.add(optimizer)
        logger.warning(
            "a registered optimizer no longer steps; %s, which trains the same parameters, "
            "replaces it",
            type(optimizer).__name__,
        )
        return True

    def _give_up(self, missing: list[Optimizer]) -> None:
        for optimizer in missing:
            self._optimizers.remove(optimizer)
            self._trained.pop(id(optimizer), None)
        logger.warning(
            "during %d steps of other optimizers, %d registered ones did not step; steps "
            "no longer wait for them: %s",
            self._num_optimizer_steps,
            len(missing),
            ", ".join(type(optimizer).__name__ for optimizer in missing),
        )

    def _can_train(self, model: nn.Module, inputs: Any) -> bool:
        # A checkpoint runs its part without gradients first, with inputs that require some.
        if not torch.is_grad_enabled() and not any(t.requires_grad for t in tensors_in(inputs)):
            self._was_in_evaluation = False
            return self.trains_without_gradient and model.training
        self._was_in_evaluation = not model.training
        return model.training or self._trains_in_evaluation


def is_recomputing() -> bool:
    """Return whether a forward pass is repeated for the backward pass that this thread is in."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001 - no public way


def _unwrapped(optimizer: object) -> object:
    # Lightning and Accelerate put wrappers around optimisers, whose steps torch does not see.
    for _ in range(_MOST_WRAPPERS):
        inner = getattr(optimizer, "optimizer", None)
        if inner is optimizer or not (isinstance(inner, Optimizer) or hasattr(inner, "optimizer")):
            break
        optimizer = inner
    return optimizer
