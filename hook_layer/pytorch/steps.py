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
"""Modes in which no optimizer steps."""
_PATIENCE: Final = 10  # steps of other optimizers, per registered optimizer
_MOST_WRAPPERS: Final = 8
_ADVISED_AFTER: Final = 5  # steps of an optimizer


class Pass(Enum):
    """Role of a forward pass in the sequence of steps.

    `BEGINS_ANEW` restarts the open step, because the earlier passes were for other models.
    """

    BEGINS = auto()
    BEGINS_ANEW = auto()
    CONTINUES = auto()
    OUTSIDE_STEPS = auto()


class StepBounds:
    """Decides where steps begin and end.

    Each forward pass of a registered model is a step, unless optimizers are registered. Then a step
    begins with the first pass after the previous step. It is complete when every optimizer has
    stepped, or was about to and a `GradScaler` skipped it. Passes that cannot train (without
    gradients, or of a model in evaluation mode) then belong to no step. A new optimizer for the
    same parameters replaces one that was deleted. A registered optimizer that never steps is
    dropped. In the modes EVAL and PREDICT each pass is a step.

    Attributes:
        is_outside_steps: Whether the newest forward pass belongs to no step.
        is_training: Whether it can be for training.
        is_open: Whether a step began and did not end.
        by_optimizer: Whether optimizers decide where steps end.
        begins_before_closure: Whether a step begins before an optimizer calls the closure that
            contains its passes.
        trains_without_gradient: Whether the optimizers step without computed gradients, so that a
            forward pass without gradients counts as training.
    """

    def __init__(self) -> None:
        self.is_outside_steps = self.is_training = self.trains_without_gradient = False
        self.is_open = self.by_optimizer = self.begins_before_closure = False
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        # Parameter ids by optimizer; weak references would prevent torch from swapping parameters.
        self._trained: dict[int, frozenset[int]] = {}
        # Optimizers of this step and of the last step with any, by id: some are not hashable.
        self._stepped: dict[int, ReferenceType[Optimizer]] = {}
        self._stepped_before: dict[int, ReferenceType[Optimizer]] = {}
        self._num_optimizer_steps = self._num_passes = self._num_shared = 0
        self._trains_in_evaluation = self._was_in_evaluation = False

    @property
    def knows_optimizers(self) -> bool:
        """Whether it knows which optimizers count, so that the caller need not check parameters."""
        return self.by_optimizer

    def others_stepped(self) -> None:
        """Note a step of an optimizer that trains none of the hook's parameters."""

    def add(self, optimizer: object) -> None:
        """Count one step per step of this and all other added optimizers.

        Raises:
            HookConfigurationError: It is not an optimizer.
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
        """Return the role of the forward pass that is about to begin."""
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
        """Note that an optimizer is about to step: the previous pass was for training."""
        if self._was_in_evaluation and not self._trains_in_evaluation:
            self._trains_in_evaluation = True
            if optimizer in self._optimizers and not self.is_open:
                logger.warning(
                    "the model trained in evaluation mode (model.eval()); earlier passes "
                    "are not steps, passes from now on are"
                )

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note a step of an optimizer of the hook's parameters; return whether that ends the step.

        By default, a step ends when all optimizers of the previous step have stepped.
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
        """Return whether all existing optimizers of the previous step have stepped."""
        before = self._stepped_before.items()
        return all(key in self._stepped or known() is None for key, known in before)

    def _advise(self) -> None:
        """Log once that a step of the script probably has several forward passes."""
        self._num_shared += self._num_passes > 1
        if self._num_shared == _ADVISED_AFTER and self._num_passes > 1:
            logger.warning(
                "the model is called %d times per optimizer step, and each call counts as "
                "a step; hook.register_optimizer(optimizer) makes them one step",
                self._num_passes,
            )
        self._num_passes = 0

    def _sharing(self, optimizer: Optimizer) -> set[int]:
        """Return the ids of registered optimizers that train some of its parameters."""
        own = set(map(id, parameters_of(optimizer)))
        return {key for key, known in self._trained.items() if known & own}

    def _takes_over(self, optimizer: Optimizer, sharing: set[int], *, is_patient: bool) -> bool:
        """Let an optimizer replace those that were deleted or have not stepped for long."""
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
        # Activation checkpointing first runs without gradients, on inputs that require some.
        if not torch.is_grad_enabled() and not any(t.requires_grad for t in tensors_in(inputs)):
            self._was_in_evaluation = False
            return self.trains_without_gradient and model.training
        self._was_in_evaluation = not model.training
        return model.training or self._trains_in_evaluation


def is_recomputing() -> bool:
    """Return whether this thread repeats a forward pass for its backward pass."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001 - no public way


def _unwrapped(optimizer: object) -> object:
    # torch does not see steps of the optimizer wrappers of Lightning and Accelerate.
    for _ in range(_MOST_WRAPPERS):
        inner = getattr(optimizer, "optimizer", None)
        if inner is optimizer or not (isinstance(inner, Optimizer) or hasattr(inner, "optimizer")):
            break
        optimizer = inner
    return optimizer
