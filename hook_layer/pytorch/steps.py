"""Decides which forward passes make a step, which are ignored, and which losses belong to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import ReferenceType, ref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.core.clock import StepClock
from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import WITHOUT_TRAINING, ModeKeys
from hook_layer.guard import FailureLog
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import tensors_in

if TYPE_CHECKING:
    from hook_layer.pytorch.loop_state import LoopState

__all__ = [
    "MANY_OTHERS",
    "FollowedSteps",
    "LossOwnership",
    "ModeOfPass",
    "Pass",
    "StepBounds",
    "StepSize",
    "TrainerSteps",
    "graph_task_id",
    "interpreter_stack",
    "is_transformed",
    "newest",
    "outside_of_transforms",
]

logger = logging.getLogger("stepwatch")


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
        was_in_evaluation: Whether the newest forward pass was of a model in evaluation mode.
    """

    def __init__(self) -> None:
        self.is_outside_steps = self.is_training = self.trains_without_gradient = False
        self.is_open = self.by_optimizer = self.begins_before_closure = False
        # Optimizers by id, because some are not hashable, with the ids of their parameters: weak
        # references would prevent torch from swapping those. Deleted ones stay until replaced.
        self._registered: dict[int, tuple[ReferenceType[Optimizer], frozenset[int]]] = {}
        # Optimizers of this step and of the last step with any.
        self._stepped: dict[int, ReferenceType[Optimizer]] = {}
        self._stepped_before: dict[int, ReferenceType[Optimizer]] = {}
        self._num_optimizer_steps = self._num_passes = self._num_shared = 0
        self._trains_in_evaluation = self.was_in_evaluation = False

    @property
    def knows_optimizers(self) -> bool:
        """Whether it knows which optimizers count, so that the caller need not check parameters."""
        return self.by_optimizer

    def others_stepped(self) -> None:
        """Note a step of an optimizer that trains none of the hook's parameters."""

    def add(self, optimizer: object) -> None:
        """Count one step per step of all added optimizers; raise an error for anything else."""
        plain = _unwrapped(optimizer)
        if not isinstance(plain, Optimizer):
            raise HookConfigurationError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer")
        self.by_optimizer = True
        for key in self._sharing(plain) - self._alive().keys():
            del self._registered[key]
        self._registered[id(plain)] = ref(plain), frozenset(map(id, parameters_of(plain)))

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:
        """Return the role of the forward pass that is about to begin."""
        if mode in WITHOUT_TRAINING:
            self.is_training = False
        elif model.training and torch.is_grad_enabled():
            self.is_training, self.was_in_evaluation = True, False
        else:
            self.is_training = self._can_train(model, inputs)
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
            stepped, self._stepped = self._stepped, {}
            self._stepped_before = {k: known for k, known in stepped.items() if known() is not None}
        self._num_optimizer_steps = 0
        self.is_open = True

    def step_ends(self) -> None:
        """Note that the step ended, complete or not: the next pass begins another one."""
        self.is_open = False

    def optimizer_steps(self, optimizer: Optimizer) -> None:
        """Note that an optimizer is about to step: the previous pass was for training."""
        if self.was_in_evaluation and not self._trains_in_evaluation:
            self._trains_in_evaluation = True
            if id(optimizer) in self._alive() and not self.is_open:
                logger.warning(
                    "the model trained in evaluation mode (model.eval()); earlier passes "
                    "are not steps, passes from now on are"
                )

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note a step of an optimizer of the hook's parameters; return whether that ends the step.

        By default, a step ends when all optimizers of the previous step have stepped.
        """
        if not self.by_optimizer:
            if self._num_passes > 1:
                self._advise()
            self._num_passes = 0
            self._stepped[id(optimizer)] = ref(optimizer)
            return self._have_all_stepped()
        if not self.is_open:
            return False
        is_registered = id(optimizer) in self._alive()
        sharing = set() if is_registered else self._sharing(optimizer)
        if not is_registered and not sharing:
            return False
        self._num_optimizer_steps += 1
        is_patient = self._num_optimizer_steps < _PATIENCE * len(self._registered)
        if not is_registered and not self._takes_over(optimizer, sharing, is_patient=is_patient):
            return False
        self._stepped[id(optimizer)] = ref(optimizer)
        missing = {key: other for key, other in self._alive().items() if key not in self._stepped}
        if missing and not is_patient:
            self._give_up(missing)
            missing = {}
        self.is_open = bool(missing)
        return not missing

    def _have_all_stepped(self) -> bool:
        """Return whether all existing optimizers of the previous step have stepped."""
        for key, known in self._stepped_before.items():  # a generator would cost a call each
            if key not in self._stepped and known() is not None:
                return False
        return True

    def _advise(self) -> None:
        """Log once that a step of the script probably has several forward passes."""
        self._num_shared += 1
        if self._num_shared == _ADVISED_AFTER:
            logger.warning(
                "the model is called %d times per optimizer step, and each call counts as "
                "a step; hook.register_optimizer(optimizer) makes them one step",
                self._num_passes,
            )

    def _sharing(self, optimizer: Optimizer) -> set[int]:
        """Return the ids of registered optimizers that train some of its parameters."""
        own = set(map(id, parameters_of(optimizer)))
        return {key for key, (_, trained) in self._registered.items() if trained & own}

    def _alive(self) -> dict[int, Optimizer]:
        """Return the registered optimizers that were not deleted, by id."""
        known = {key: optimizer() for key, (optimizer, _) in self._registered.items()}
        return {key: optimizer for key, optimizer in known.items() if optimizer is not None}

    def _takes_over(self, optimizer: Optimizer, sharing: set[int], *, is_patient: bool) -> bool:
        """Let an optimizer replace those that were deleted or have not stepped for long."""
        are_stepping = self._alive().keys() & (sharing if is_patient else self._stepped.keys())
        replaced = sharing - are_stepping
        if not replaced:
            return False
        for key in replaced:
            del self._registered[key]
        self.add(optimizer)
        logger.warning(
            "a registered optimizer no longer steps; %s, which trains the same parameters, "
            "replaces it",
            type(optimizer).__name__,
        )
        return True

    def _give_up(self, missing: Mapping[int, Optimizer]) -> None:
        for key in missing:
            del self._registered[key]
        logger.warning(
            "during %d steps of other optimizers, %d registered ones did not step; steps "
            "no longer wait for them: %s",
            self._num_optimizer_steps,
            len(missing),
            ", ".join(type(optimizer).__name__ for optimizer in missing.values()),
        )

    def _can_train(self, model: nn.Module, inputs: Any) -> bool:
        # Activation checkpointing first runs without gradients, on inputs that require some.
        if not torch.is_grad_enabled() and not any(t.requires_grad for t in tensors_in(inputs)):
            self.was_in_evaluation = False
            return self.trains_without_gradient and model.training
        self.was_in_evaluation = not model.training
        return model.training or self._trains_in_evaluation


graph_task_id: Final[Callable[[], int]] = torch._C._current_graph_task_id  # noqa: SLF001 - no public way
"""Returns the id of the backward pass in this thread, which may repeat forward passes; else -1."""


interpreter_stack: Final[Callable[[], object]] = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001 - no public way
"""Returns the innermost active transform; None without any."""
_ALWAYS: Final = nullcontext()


def is_transformed(model: nn.Module) -> bool:
    """Return whether a transform calls a model with substituted parameters; log it once.

    `vmap(grad(loss))` around `functional_call(model, ...)` calls the model with tensors that have
    no values of their own. Nothing of such a pass can be saved.
    """
    if interpreter_stack() is None:
        return False
    first: object = next(model.parameters(), None)
    if first is None or isinstance(first, nn.Parameter):
        return False
    _warn_of_transforms()
    return True


def outside_of_transforms() -> AbstractContextManager[object]:
    """Return a context without active transforms.

    Within a transform, everything that is computed from a model's own parameters belongs to the
    transform, and has no values.
    """
    return _ALWAYS if interpreter_stack() is None else torch._C._DisableFuncTorch()  # noqa: SLF001


@cache
def _warn_of_transforms() -> None:
    logger.warning(
        "models called with functional_call inside torch.func transforms (vmap, grad) are "
        "not watched; their training is not saved"
    )


def _unwrapped(optimizer: object) -> object:
    # torch does not see steps of the optimizer wrappers of Lightning and Accelerate.
    for _ in range(_MOST_WRAPPERS):
        inner = getattr(optimizer, "optimizer", None)
        if inner is optimizer or not (isinstance(inner, Optimizer) or hasattr(inner, "optimizer")):
            break
        optimizer = inner
    return optimizer


_AT_FIRST: Final = 4
_LOST_AFTER: Final = 8
"""Factor of the longest earlier step's passes after which the optimizers count as lost."""


class FollowedSteps(StepBounds):
    """Decides where steps begin and end by the optimizers that train the models.

    A step begins with the first forward pass after the previous step. It is complete when all
    optimizers of the previous step have stepped, or one of them steps a second time. So optimizers
    may alternate, start later and disappear.

    If only optimizers of other models stepped since a pass, such as those of an adversary, the next
    pass begins the step anew. If no optimizer steps for `_LOST_AFTER` times the passes of the
    longest step (4 at least), each pass is a step until one does: a script may update its
    parameters without torch's optimizers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._longest = _AT_FIRST
        self._num_since = 0  # passes since an optimizer completed a step
        self._stepped_at: dict[int, int] = {}  # number of passes by optimizer, in the open step
        self._were_for_others = False
        self.by_optimizer = True  # until the optimizers are lost

    @property
    def knows_optimizers(self) -> bool:
        """Whether it knows which optimizers count, so that the caller need not check parameters."""
        return False

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:
        """Return the role of the forward pass that is about to begin."""
        is_open = self.is_open and self.by_optimizer and not self._were_for_others
        is_in_training = model.training and torch.is_grad_enabled() and mode not in WITHOUT_TRAINING
        if is_open and is_in_training and self._num_since < _LOST_AFTER * self._longest:
            # The usual pass of a further model, without calls.
            self.is_training, self.was_in_evaluation, self.is_outside_steps = True, False, False
            self._num_since += 1
            return Pass.CONTINUES
        role = super().next_pass(mode, model, inputs)
        if role is Pass.OUTSIDE_STEPS or mode in WITHOUT_TRAINING:
            return role
        were_for_others, self._were_for_others = self._were_for_others, False
        if were_for_others and self.is_open and self.by_optimizer and not self._stepped_at:
            self._num_since = 1
            return Pass.BEGINS_ANEW
        self._num_since += 1
        self.by_optimizer &= self._num_since <= _LOST_AFTER * self._longest
        return Pass.CONTINUES if self.is_open and self.by_optimizer else Pass.BEGINS

    def expect(self, optimizers: Iterable[Optimizer]) -> None:
        """Let the first step be complete when all of these have stepped."""
        self._stepped_before.update((id(optimizer), ref(optimizer)) for optimizer in optimizers)

    def step_begins(self) -> None:
        """Note that a step began."""
        super().step_begins()
        self._stepped_at.clear()

    def optimizer_steps(self, optimizer: Optimizer) -> None:  # noqa: ARG002
        """Note that an optimizer is about to step: the previous pass was for training."""
        self._trains_in_evaluation |= self.was_in_evaluation

    def others_stepped(self) -> None:
        """Note a step of an optimizer that trains none of the hook's parameters."""
        self._were_for_others = True

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note a step of an optimizer of our parameters; return whether it ends the step."""
        key = id(optimizer)
        self._stepped[key] = ref(optimizer)
        self._were_for_others = False
        if self.by_optimizer and not self.is_open:
            return False
        is_again = self._stepped_at.get(key, self._num_since) < self._num_since
        self._stepped_at[key] = self._num_since
        is_complete = is_again or not self.by_optimizer
        if not is_complete and len(self._stepped) >= len(self._stepped_before):
            is_complete = self._have_all_stepped()
        if is_complete:
            self._longest = max(self._longest, self._num_since)
            self._num_since = 0
            self.by_optimizer, self.is_open = True, False
        return is_complete


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


_CHECKED_AGAIN: Final = 1.1
"""Growth of the number of tensors after which their bytes are summed again, which is slow."""


class StepSize:
    """Detects a step that holds too much data, such as one whose optimizer never steps."""

    def __init__(
        self, failures: FailureLog, recorder: Recorder, collector: Collector, max_bytes: float
    ) -> None:
        self._failures = failures
        self._recorder = recorder
        self._collector = collector
        self._max_bytes = max_bytes
        self._num_checked = 0

    def begin_step(self) -> None:
        """Note that a step begins."""
        self._num_checked = 0

    def is_full(self) -> bool:
        """Return whether the open step holds as much as may wait for the writer; log it."""
        record = self._recorder.record
        if record is None or record.num_tensors <= self._num_checked * _CHECKED_AGAIN:
            return False
        self._num_checked = record.num_tensors
        if record.nbytes < self._max_bytes:
            return False
        self._failures.warn_once(
            "step %d ended before all optimizers stepped; its %d tensors fill "
            "queue_bytes=%d. Save less, or raise queue_bytes.",
            record.step,
            record.num_tensors,
            int(self._max_bytes),
        )
        return True

    def end_if_full(self) -> bool:
        """If the open step is full, end it and save nothing until the next; return that."""
        if not self.is_full():
            return False
        self._recorder.end_step()
        self._collector.clear()
        return True


_FEW_OTHERS: Final = 3
MANY_OTHERS: Final = 40
"""Optimizer steps of others since the last call of a watched model, after which losses are theirs:
few after a complete step, many in an incomplete one. A gradient scaler counts twice.
"""


class NewestModel(threading.local):
    """The model that was called last in a thread, among all hooks."""

    model: ReferenceType[nn.Module] | None = None


newest: Final = NewestModel()


class LossOwnership:
    """Decides whether a loss belongs to this hook's models, or to other code.

    Attributes:
        num_others: Steps of other optimizers since a model was called.
        has_graph: Whether the newest pass computes gradients.
        thread: The thread of the newest pass: later losses in it belong to the called model.
    """

    def __init__(self, loop: LoopState, clock: StepClock, recorder: Recorder) -> None:
        self.num_others = self.thread = 0
        self.has_graph = False
        self._loop = loop
        self._clock = clock
        self._recorder = recorder

    def others_begin(self) -> None:
        """Note that the training of another model begins."""
        self.num_others = max(self.num_others, _FEW_OTHERS)

    def owns_module(self, outputs: Any) -> bool:
        """Return whether the outputs of a registered loss module belong to this hook's models.

        Other threads may train other models.
        """
        return self.thread in (0, threading.get_ident()) and not self._is_of_others(outputs)

    def owns(self, outputs: Any) -> bool:
        """Return whether a loss belongs to this hook's models: this thread called one of them last.

        Passes that are repeated for a backward pass compute no further loss.
        """
        if threading.get_ident() != self.thread:
            return False
        model = None if newest.model is None else newest.model()
        return model in self._loop.registered.names and not self._is_of_others(outputs)

    def _is_of_others(self, outputs: Any) -> bool:
        """Return whether a loss is repeated, or the script now trains another model.

        After the first step of another optimizer, this model's loss may still follow: in a GAN, it
        is computed from the other model's outputs.
        """
        if graph_task_id() != -1:
            return True
        if self.num_others:
            is_complete = self._recorder.is_captured or self._clock.is_evaluating
            if self.num_others >= (_FEW_OTHERS if is_complete else MANY_OTHERS):
                return True
        return self._trains_another(outputs)

    def _trains_another(self, outputs: Any) -> bool:
        """Return whether a loss trains another model while this one is validated.

        A loss that is computed from a pass without gradients has none. The check applies only where
        a trainer reports the steps, which may begin without any pass.
        """
        is_validated = self._clock.is_evaluating and not self.has_graph
        if not is_validated or self._loop.steps.knows_optimizers or not torch.is_grad_enabled():
            return False
        return any(value.requires_grad for value in tensors_in(outputs))
