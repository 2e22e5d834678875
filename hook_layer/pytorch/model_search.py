"""Distinguishes the model from other modules: by optimizers, stack frames and compiled parts."""

from __future__ import annotations

import atexit
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final
from weakref import ReferenceType, WeakSet, ref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.autopatch.uncaptured import log_reason
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import STEP_ENDED, register_hook, tensors_in, versions_of
from hook_layer.pytorch.watched_functions import BACKWARD
from hook_layer.pytorch.wrappers import is_a_key, is_wrapper

__all__ = [
    "MadeOptimizers",
    "UnwatchedModels",
    "call_when_it_returns",
    "has_compiled_parts",
    "is_around",
    "is_being_made",
    "is_called_as_part",
    "is_called_within",
    "is_trained",
    "module_trained_by",
    "own_losses",
    "whole_of",
    "without_wrapper",
]

logger = logging.getLogger("stepwatch")

_PATIENCE: Final = 50
"""Optimizer steps (or backward passes, without optimizers) before the reason is reported."""
_CALL: Final = nn.Module._call_impl.__code__  # noqa: SLF001 - no public way to know it in a stack


class MadeOptimizers:
    """The optimizers that a script has created, referenced weakly."""

    def __init__(self) -> None:
        self._made: list[ReferenceType[Optimizer]] = []
        self._beside: WeakSet[nn.Module] = WeakSet()
        self._first: Callable[[], nn.Module | None] = lambda: None
        self._versions: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._made)

    def add(self, optimizer: Optimizer) -> None:
        """Add a new optimizer."""
        self._made = [*(known for known in self._made if known() is not None), ref(optimizer)]
        self._beside.clear()
        self._first = lambda: None

    def all_made(self) -> list[Optimizer]:
        """Return the optimizers that still exist."""
        made = (known() for known in self._made)
        return [optimizer for optimizer in made if optimizer is not None]

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters that they train."""
        return [p for one in self.all_made() for p in parameters_of(one)]

    def exclude(self, module: nn.Module) -> bool:
        """Return whether a module is not the model, judged before its call.

        It may still be the model if optimizers have changed their parameters since its first call:
        they may train copies of its parameters.
        """
        if not self.leave_out(module):
            return False
        first = self._first()
        if first is None:
            self._first, self._versions = ref(module), self._num_writes()
        return first is not module or self._versions == self._num_writes()

    def leave_out(self, module: nn.Module) -> bool:
        """Return whether there are optimizers, and none trains any part of a module."""
        if module in self._beside:
            return True
        trained = set[int]().union(*self._trained())
        if not trained or any(id(parameter) in trained for parameter in module.parameters()):
            return False
        self._beside.update(part for part in module.modules() if is_a_key(part))
        return True

    def train_more_than(self, part: nn.Module, whole: nn.Module) -> bool:
        """Return whether an optimizer trains all of a module, which is more than a part of it."""
        least, most = _ids_in(part), _ids_in(whole)
        return least < most and any(most <= trained for trained in self._trained())

    def train_beyond(self, part: nn.Module) -> bool:
        """Return whether an optimizer trains all of a module, and further parameters."""
        least = _ids_in(part)
        return any(least < trained for trained in self._trained())

    def _num_writes(self) -> tuple[int, ...]:
        return versions_of(self.parameters())

    def _trained(self) -> Iterator[set[int]]:
        """Yield each optimizer's parameter ids; weak references would prevent swapping in torch."""
        for optimizer in self.all_made():
            yield set(map(id, parameters_of(optimizer)))


class UnwatchedModels:
    """Reports models that are not watched, and why nothing of a script is captured.

    Attributes:
        num_backward: Backward passes that were seen while the model is missing.
    """

    def __init__(self, optimizers: MadeOptimizers) -> None:
        self._optimizers = optimizers
        self._scripted_class = ""
        self._num_steps = self.num_backward = 0
        self._is_missing: Callable[[], bool] = lambda: False
        self._handles: list[Any] = []

    def report_scripted(self, module: nn.Module) -> None:
        """Report a module of torch.jit."""
        if not self._scripted_class:
            self._scripted_class = getattr(module, "original_name", type(module).__name__)
            logger.warning(
                "a %s of torch.jit cannot have hooks; train the module that it was made from",
                self._scripted_class,
            )

    def report_missing(self, is_missing: Callable[[], bool]) -> None:
        """Report the reason once if the model is missing after many steps, or at the end."""
        self._is_missing = is_missing
        self._handles = [
            STEP_ENDED.listen(self._on_step),
            BACKWARD.listen(self._on_backward, is_before_call=True),
        ]
        atexit.register(self._report_reason)

    def _on_step(self, *_: object) -> None:
        self._num_steps += 1
        self._check_patience()

    def _on_backward(self, *_: object) -> None:
        self.num_backward += 1
        self._check_patience()

    def _check_patience(self) -> None:
        counted = self._num_steps if self._optimizers else self.num_backward
        if counted >= _PATIENCE or not self._is_missing():
            self._report_reason()

    def _report_reason(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        try:
            reason = self._reason() if handles and self._is_missing() else ""
            if reason:
                log_reason(reason)
        except Exception:
            logger.exception("finding the reason why nothing is captured failed")

    def _reason(self) -> str:
        """Return why no model was found; empty if nothing was trained."""
        if not (self._num_steps or self.num_backward):
            return ""
        if self._scripted_class:
            return (
                f"the model, a {self._scripted_class}, is of torch.jit and cannot "
                "have hooks: train the module that it was made from"
            )
        trained = self._optimizers.parameters()
        if trained and not any(parameter.requires_grad for parameter in trained):
            return (
                "all parameters are frozen: none in the optimizer has requires_grad=True, so "
                "nothing is trained"
            )
        if _has_graphs():
            return (
                "the model is inside a function that torch.compile compiles: compile the model "
                "instead, and call it outside of such functions"
            )
        owner = _class_with({id(parameter) for parameter in trained})
        if owner is None:
            return (
                "no torch module: the script trains plain tensors; store them in an "
                "nn.Module as nn.Parameter, and call the module"
            )
        return (
            f"no torch module was called with gradients: the parameters of a {owner} are trained, "
            "but neither it nor a part of it was called; call the model as model(inputs)"
        )


def is_trained(module: nn.Module) -> bool:
    """Return whether a module is trainable, and not a Keras module."""
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(module).__mro__):
        return False
    return any(parameter.requires_grad for parameter in module.parameters())


def module_trained_by(optimizer: Optimizer) -> nn.Module | None:
    """Return the outermost module that has all parameters of an optimizer; None if none has."""
    trained = {id(parameter) for parameter in parameters_of(optimizer)}
    around = [m for m in _all_modules() if trained and trained <= set(map(id, m.parameters()))]
    return next((m for m in around if not any(is_around(other, m) for other in around)), None)


def call_when_it_returns(module: nn.Module, callback: Callable[[nn.Module], object]) -> None:
    """Call back once a module returns, unless it returns single numbers: then it is a loss."""

    def on_return(module: nn.Module, _: Any, outputs: Any) -> None:
        handle.remove()
        values = tensors_in(outputs)
        if not values or any(value.numel() != 1 for value in values):
            callback(module)

    handle = register_hook(module.register_forward_hook, on_return)


def without_wrapper(module: nn.Module) -> nn.Module:
    """Return the model that the script wrote, without DistributedDataParallel."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return without_wrapper(module.get_submodule("module"))
    return module


def whole_of(part: nn.Module, optimizers: MadeOptimizers) -> nn.Module:
    """Return the outermost module whose methods call a part of it, or else the part.

    Return the part also if the module is called itself, or if no optimizer trains all of it: it may
    be any container of models.
    """
    # Before Python 3.13, a function whose variables were read keeps them alive until it returns.
    if not optimizers.train_beyond(part) or not _is_trained_in_another(part, optimizers):
        return part
    whole, called = part, set[int]()
    for frame in _frames():
        owner = _owner(frame)
        if owner is None or owner is part:
            continue
        if frame.f_code is _CALL:
            called.add(id(owner))
        elif is_around(owner, part):
            whole = without_wrapper(owner)
    is_one = id(whole) not in called and is_trained(whole)
    return whole if is_one and optimizers.train_more_than(part, whole) else part


def is_called_as_part(module: nn.Module) -> bool:
    """Return whether a module is called as a part of another module."""
    owners = (_owner(frame) for frame in _frames() if frame.f_code is _CALL)
    return any(owner is not None and is_around(owner, module) for owner in owners)


def is_being_made() -> bool:
    """Return whether a module calls its parts in `__init__`, e.g. to infer a shape."""
    return any(f.f_code.co_name == "__init__" and _owner(f) is not None for f in _frames())


def is_called_within(module: nn.Module) -> bool:
    """Return whether a call of a module is active in this thread."""
    return any(frame.f_code is _CALL and _owner(frame) is module for frame in _frames())


def has_compiled_parts(model: nn.Module) -> bool:
    """Return whether torch.compile was applied to a model or parts of it, in any way."""
    return any(
        is_wrapper(part)
        or getattr(part, "_compiled_call_impl", None) is not None
        or hasattr(part.forward, "_torchdynamo_orig_callable")
        for part in model.modules()
    )


def own_losses() -> list[nn.Module]:
    """Return all existing modules whose class is called `...Loss`."""
    return [module for module in _all_modules() if type(module).__name__.endswith("Loss")]


def is_around(module: nn.Module, part: nn.Module | None) -> bool:
    """Return whether a module that may be watched contains another one."""
    if module is part or is_wrapper(module) or isinstance(module, torch.jit.ScriptModule):
        return False
    return is_a_key(module) and any(inner is part for inner in module.modules())


def _is_trained_in_another(part: nn.Module, optimizers: MadeOptimizers) -> bool:
    return any(
        is_around(module, part) and optimizers.train_more_than(part, without_wrapper(module))
        for module in _all_modules()
    )


def _all_modules() -> list[nn.Module]:
    # A proxy may fake its class.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]


def _ids_in(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters() if parameter.requires_grad}


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and cheap
    while frame is not None:
        yield frame
        frame = frame.f_back


def _owner(frame: FrameType) -> nn.Module | None:
    """Return the module whose method runs in a frame."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    owner = frame.f_locals.get(names[0]) if names else None
    return owner if issubclass(type(owner), nn.Module) else None


def _has_graphs() -> bool:
    """Return whether torch.compile has compiled anything."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs"))


def _class_with(parameters: set[int]) -> str | None:
    """Return the class of a module that has one of these parameters, or one with a gradient."""
    for module in _all_modules():
        for parameter in module.parameters():
            if id(parameter) in parameters or (not parameters and parameter.grad is not None):
                return type(module).__name__
    return None
