"""Finds the model among the modules that a script calls, from stack frames and optimizers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from weakref import ReferenceType, WeakSet, ref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import versions_of
from hook_layer.pytorch.wrappers import is_a_key, is_wrapper

__all__ = [
    "MadeOptimizers",
    "has_compiled_parts",
    "has_graphs",
    "is_around",
    "is_being_made",
    "is_called_as_part",
    "is_called_within",
    "is_trained",
    "own_losses",
    "whole_of",
    "without_wrapper",
]

_CALL = nn.Module._call_impl.__code__  # noqa: SLF001 - no public way to know it in a stack


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

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters that they train."""
        made = (known() for known in self._made)
        return [p for one in made if one is not None for p in parameters_of(one)]

    def pass_by(self, module: nn.Module) -> bool:
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
        for known in self._made:
            optimizer = known()
            if optimizer is not None:
                yield set(map(id, parameters_of(optimizer)))


def is_trained(module: nn.Module) -> bool:
    """Return whether a module is trainable, and not a Keras module."""
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(module).__mro__):
        return False
    return any(parameter.requires_grad for parameter in module.parameters())


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


def has_graphs() -> bool:
    """Return whether torch.compile has compiled anything."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs"))


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
