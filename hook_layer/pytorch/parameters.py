"""Finds the due parameters of a model, and their changed gradients.

Nothing is registered with the parameters. A gradient has changed if it is another tensor, or was
written to, since the last check. It is read after the whole backward pass: then it is the sum over
all paths and, in DistributedDataParallel, over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.core.collector import Collector
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.tensor_elements import WHOLE, is_uninitialized

__all__ = ["GRADIENT_PREFIX", "DueParameters", "GradientReader"]

GRADIENT_PREFIX = "gradient/"
_WEIGHT: Final = (CollectionKeys.WEIGHTS,)

_Due = dict[str, tuple[nn.Parameter, TensorPlan]]


class DueParameters:
    """Finds due parameters, and parameters whose gradients are due."""

    def __init__(self, registered: RegisteredModules, collector: Collector) -> None:
        self._registered = registered
        self._collector = collector
        self._known: WeakKeyDictionary[nn.Module, _Model] = WeakKeyDictionary()

    def check_again(self) -> None:
        """Check the models for changes before the cache is used again."""
        for model in self._known.values():
            model.is_checked = False

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()

    def parameters(self, model: nn.Module) -> _Due:
        """Return the due parameters of a model, by name."""
        return self._of(model, "")

    def gradients(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the parameters of a model whose gradients are due, by gradient name."""
        due = self._of(model, GRADIENT_PREFIX)
        return {name: parameter for name, (parameter, _) in due.items()}

    def _of(self, model: nn.Module, prefix: str) -> _Due:
        known = self._known.get(model)
        if known is None or not known.is_current():
            known = self._known[model] = _Model(model)
        key = (prefix, *self._collector.due_key)
        due = known.due.get(key)
        if due is None:
            named = known.named(self._registered.named_parameters(model))
            named = {prefix + n: p for n, p in named.items()}
            due = self._due(named, is_of_gradients=bool(prefix))
            if all(type(parameter) in WHOLE for parameter in named.values()):
                known.due[key] = due
        return due

    def _due(self, named: Mapping[str, nn.Parameter], *, is_of_gradients: bool) -> _Due:
        found: _Due = {}
        weights = frozenset[str]() if is_of_gradients else _unnamed_weights(named)
        for name, parameter in named.items():
            if is_of_gradients and not parameter.requires_grad:  # it gets none
                continue
            plan = self._collector.plan(name, _WEIGHT if name in weights else ())
            if plan is not None and not is_uninitialized(parameter):
                found[name] = parameter, plan
        return found


def _unnamed_weights(named: Mapping[str, nn.Parameter]) -> frozenset[str]:
    """Return the weights of a model that calls no parameter so: its matrices, if no biases."""
    if any("weight" in name for name in named):
        return frozenset()
    matrices = (name for name, parameter in named.items() if parameter.dim() > 1)
    return frozenset(name for name in matrices if "bias" not in name)


class _Model:
    """What is due of a model, by prefix and collections, and whether the model has changed."""

    def __init__(self, model: nn.Module) -> None:
        self.due: dict[tuple[Any, ...], _Due] = {}
        self.is_checked = True
        # The dicts, not the modules, so that nothing here keeps the model alive.
        self._parts = [(part._parameters, part._modules) for part in model.modules()]  # noqa: SLF001
        self._named: dict[str, nn.Parameter] = {}
        self._state: list[tuple[int | bool, ...]] = []
        self._state = self._current_state()

    def is_current(self) -> bool:
        """Return whether the model has the same parts and parameters as before."""
        if not self.is_checked:
            self.is_checked = self._state == self._current_state()
        return self.is_checked

    def named(self, current: Iterable[tuple[str, Tensor]]) -> Mapping[str, nn.Parameter]:
        """Return the current parameters by name, but the known ones while a call swaps in others.

        `torch.func.functional_call` swaps in tensors that are no parameters.
        """
        found = dict(current)
        parameters = {name: p for name, p in found.items() if isinstance(p, nn.Parameter)}
        if len(parameters) == len(found):
            self._named = parameters
        return self._named

    def _current_state(self) -> list[tuple[int | bool, ...]]:
        state: list[tuple[int | bool, ...]] = []
        for parameters, modules in self._parts:
            state.append(tuple(map(id, modules.values())))
            own: list[Tensor] = [p for p in parameters.values() if p is not None]
            if not all(isinstance(p, nn.Parameter) for p in own):
                return self._state  # a call swaps in others
            state += [tuple(map(id, own)), tuple([p.requires_grad for p in own])]
        return state


_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class GradientReader:
    """Finds the gradients of a step.

    Attributes:
        watched: Parameters by the names of their gradients.
        arrived: Those whose gradients have arrived and were not taken yet.
    """

    def __init__(self) -> None:
        self.watched: dict[str, nn.Parameter] = {}
        self._before: list[tuple[Tensor | None, int]] | None = None  # during a backward pass
        self.arrived: dict[str, nn.Parameter] = {}
        self._announced: set[str] = set()
        self._found: set[str] = set()
        self._known: dict[str, _Version] = {}

    @property
    def all_announced(self) -> bool:
        """Whether backward passes have produced the gradients of all watched parameters, if any."""
        return bool(self.watched) and len(self._announced) >= len(self.watched)

    def begin_step(self) -> None:
        """Forget the gradients of the previous step, and a backward pass that raised an error."""
        self.arrived, self._before = {}, None
        self._announced.clear()
        self._found.clear()

    def watch(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Also watch these parameters, by the names of their gradients."""
        self.watched.update(parameters)
        there = {name: p.grad for name, p in parameters.items()}
        self._known = {name: v for name, v in self._known.items() if name not in there}
        self._known.update((name, _Version(g)) for name, g in there.items() if g is not None)

    def unwatch(self) -> None:
        """Stop watching."""
        self.watched = {}
        self._known.clear()
        self.begin_step()

    def backward_begins(self) -> None:
        """Record the gradients before a backward pass."""
        gradients = [parameter.grad for parameter in self.watched.values()]
        self._before = [(g, 0 if g is None else _num_writes(g)) for g in gradients]

    def backward_ends(self) -> None:
        """Find the gradients that the backward pass has changed, even if it raised an error."""
        if self._before is None:
            return
        before, self._before = self._before, None
        for (name, parameter), (gradient, version) in zip(
            self.watched.items(), before, strict=False
        ):
            now = parameter.grad
            if now is None or (now is gradient and _num_writes(now) == version):
                continue
            if name not in self._found:  # otherwise its optimizer has stepped
                self.arrived[name] = parameter

    def find(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """Return gradients that arrived without a noticed backward pass since the last check.

        Scripts may assign results of `torch.autograd.grad`, FSDP2 assigns reduced gradients, and an
        optimizer may step within the backward pass.
        """
        found = {}
        for name, parameter in parameters.items():
            gradient = parameter.grad
            if gradient is None or name in self._announced:
                continue
            known, self._known[name] = self._known.get(name), _Version(gradient)
            if known is None or not known.is_of(gradient):
                self._found.add(name)
                found[name] = gradient
        return found

    def have_been_used(self, parameters: Iterable[nn.Parameter]) -> None:
        """Note that an optimizer has stepped: later gradients of this step are no use to it.

        The loss of another model may reach its parameters, as that of a generator.
        """
        used = {id(parameter) for parameter in parameters}
        names = {name for name, parameter in self.watched.items() if id(parameter) in used}
        self._found |= names
        self._announced |= names

    def take(self, only: Iterable[nn.Parameter] | None = None) -> dict[str, Tensor]:
        """Return and remove new gradients by name, optionally `only` those of some parameters."""
        arrived, self.arrived = self.arrived, {}
        if only is not None:
            chosen = {id(parameter) for parameter in only}
            self.arrived = {name: p for name, p in arrived.items() if id(p) not in chosen}
            arrived = {name: p for name, p in arrived.items() if id(p) in chosen}
        gradients = {name: p.grad for name, p in arrived.items() if p.grad is not None}
        self._announced.update(gradients)
        return gradients


class _Version:
    """Identity, memory and write count of a gradient; holds no strong reference."""

    __slots__ = ("_memory", "_num_writes", "_tensor")

    def __init__(self, gradient: Tensor) -> None:
        self._tensor = None if _may_be_swapped(gradient) else ref(gradient)
        self._memory = _memory(gradient)
        self._num_writes = _num_writes(gradient)

    def is_of(self, gradient: Tensor) -> bool:
        """Return whether it is this gradient, without writes since."""
        is_same = self._tensor is None or self._tensor() is gradient
        is_written_to = self._num_writes != _num_writes(gradient)
        return is_same and not is_written_to and self._memory == _memory(gradient)


def _may_be_swapped(gradient: Tensor) -> bool:
    """Return whether `Module.to` may swap a gradient, which torch refuses with weak references.

    Such a gradient is identified by a reference to its memory, which takes four times as long.
    """
    has_class = type(gradient) is not Tensor
    return has_class or torch.__future__.get_swap_module_params_on_conversion()


def _memory(gradient: Tensor) -> tuple[object, ...]:
    if not _may_be_swapped(gradient):
        return (gradient.data_ptr(),) if gradient.layout is torch.strided else ()
    values = gradient
    if gradient.layout in _COMPRESSED:
        values = gradient.values()
    elif gradient.is_sparse:
        values = gradient._values()  # noqa: SLF001 - also for uncoalesced tensors
    return id(gradient), StorageWeakRef(values.untyped_storage())  # type: ignore[no-untyped-call]


def _num_writes(tensor: Tensor) -> int:
    # Inference tensors do not count writes.
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public way
