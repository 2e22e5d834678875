"""Hooks on parameters and submodules, put there only for steps that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import ModuleCall, ModuleCallback, skip_compilation, uncompiled
from hook_layer.weak_method import WeakMethod

__all__ = ["GradientWatch", "ModuleWatch", "drop_arrivals"]


class GradientWatch:
    """Notices when the gradients of parameters arrive, and when the backward pass is over.

    A gradient is read when the whole backward pass has ended: by then the parameters' `.grad` are
    the sums over all paths, and in DistributedDataParallel over all workers.

    Args:
        on_backward_end: Called after each backward pass that reached a watched parameter.
    """

    def __init__(self, on_backward_end: Callable[[], None]) -> None:
        known = WeakMethod(on_backward_end)  # parameters may live on

        def call() -> None:
            method = known()
            if method is not None:
                method()

        self._on_backward_end = uncompiled(call)
        skip_compilation(
            self._first_call, self._last_call, self.gradient_arrived, _Arrival.__call__,
            _call_after_backward,
        )  # fmt: skip
        self._handles: dict[str, tuple[nn.Parameter, Any]] = {}
        self._arrived: dict[str, nn.Parameter] = {}
        self._announced: set[str] = set()
        self._found: set[str] = set()
        self._known: dict[str, _Version] = {}
        self._is_queued = False

    @property
    def num_watched(self) -> int:
        """Number of watched parameters."""
        return len(self._handles)

    def new_step(self) -> None:
        """Forget what arrived before; also a backward pass that never ended, because it raised."""
        self._is_queued = False
        self._arrived.clear()
        self._announced.clear()
        self._found.clear()

    def watch(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Watch these parameters, by the names of their gradients, besides those watched."""
        for name, parameter in parameters.items():
            self._known[name] = _Version(parameter.grad)
            known = self._handles.get(name)
            if known is not None and known[0] is parameter:
                continue
            if known is not None:
                known[1].remove()
            handle = own_hooks.register(
                parameter.register_post_accumulate_grad_hook, _Arrival(self, name)
            )
            self._handles[name] = (parameter, handle)

    def step_ends(self) -> None:
        """Look for no more gradients in this step; torch swaps none that has weak references."""
        self._known.clear()

    def unwatch(self) -> None:
        """Take all hooks off."""
        for _, handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._arrived.clear()
        self._known.clear()

    @property
    def all_announced(self) -> bool:
        """Whether the gradients of all watched parameters arrived by a backward pass."""
        return len(self._announced) >= len(self._handles)

    def find(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """Return gradients that arrived otherwise since the step began, or since the last call.

        Scripts may assign what `torch.autograd.grad` returns, FSDP2 what it reduced, and an
        optimiser may step within the backward pass, before our hook.

        Args:
            parameters: Those to look at, by the names of their gradients.
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

    def take(self, only: Iterable[nn.Parameter] | None = None) -> dict[str, Tensor]:
        """Return the gradients that arrived and were not taken yet, by name.

        Args:
            only: Leave those of other parameters where they are.
        """
        arrived, self._arrived = self._arrived, {}
        if only is not None:
            chosen = {id(parameter) for parameter in only}
            self._arrived = {name: p for name, p in arrived.items() if id(p) not in chosen}
            arrived = {name: p for name, p in arrived.items() if id(p) in chosen}
        gradients = {name: p.grad for name, p in arrived.items() if p.grad is not None}
        self._announced.update(gradients)
        return gradients

    def gradient_arrived(self, name: str, parameter: nn.Parameter) -> None:
        """Note that a backward pass has computed a gradient."""
        if name in self._found:
            return  # its optimiser has stepped, and finds the next one as well
        self._arrived[name] = parameter
        if not self._is_queued:
            self._is_queued = True
            _call_after_backward(self._first_call)

    def _first_call(self) -> None:
        # DistributedDataParallel queues its own end behind ours: let it average first.
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            _call_after_backward(self._last_call)
        else:
            self._last_call()

    def _last_call(self) -> None:
        self._is_queued = False
        self._on_backward_end()


class _Arrival:
    """Notes a gradient of a parameter, as long as its watch is there.

    Args:
        watch: The watch, known weakly: parameters may outlive it.
        name: The gradient's name.
    """

    def __init__(self, watch: GradientWatch, name: str) -> None:
        self._watch = ref(watch)
        self._name = name

    @property
    def is_dead(self) -> bool:
        """Whether nobody wants to know any more."""
        return self._watch() is None

    def __call__(self, parameter: nn.Parameter) -> None:
        watch = self._watch()
        if watch is not None:
            watch.gradient_arrived(self._name, parameter)


class _Version:
    """Which tensor it is, and how often it was written to; does not keep it alive."""

    __slots__ = ("_number", "_tensor")

    def __init__(self, tensor: Tensor | None) -> None:
        self._tensor = None if tensor is None else ref(tensor)
        self._number = 0 if tensor is None else _num_writes(tensor)

    def is_of(self, tensor: Tensor) -> bool:
        """Return whether it is this tensor, and nobody wrote to it since."""
        is_same = self._tensor is not None and self._tensor() is tensor
        return is_same and _num_writes(tensor) == self._number


def _num_writes(tensor: Tensor) -> int:
    # Inference tensors do not count them.
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public way


class ModuleWatch:
    """Calls back after the forward pass of chosen modules.

    Compiled code neither notices hooks that come later nor is made anew when they go. So where
    torch.compile meets a hook, that hook stays.
    """

    def __init__(self, callback: ModuleCallback) -> None:
        self._callback = WeakMethod(callback)  # its owner owns this
        self._handles: dict[nn.Module, Any] = {}
        self._calls: WeakKeyDictionary[nn.Module, ModuleCall] = WeakKeyDictionary()
        self._compiled: set[nn.Module] = set()

    def watch_only(self, modules: AbstractSet[nn.Module]) -> None:
        """Watch these modules, and no others but the compiled ones."""
        for module in self._handles.keys() - modules - self._compiled:
            self._handles.pop(module).remove()
        self._watch(modules)

    def keep(self, modules: AbstractSet[nn.Module]) -> None:
        """Watch these modules until `stop`: torch.compile is about to see them."""
        self._compiled |= modules
        self._watch(modules)

    def stop(self) -> None:
        """Take all hooks off."""
        self._compiled.clear()
        self.watch_only(frozenset())

    def _watch(self, modules: AbstractSet[nn.Module]) -> None:
        callback = self._callback()
        if callback is None:
            return
        for module in modules - self._handles.keys():
            call = self._calls.get(module)
            if call is None:
                call = self._calls[module] = ModuleCall(module, callback, self._keep_one)
            self._handles[module] = own_hooks.register(
                module.register_forward_hook, call, with_kwargs=True
            )

    def _keep_one(self, module: nn.Module) -> None:
        self.keep({module})


def _call_after_backward(callback: Callable[[], None]) -> None:
    # The way of DistributedDataParallel; there is no public one.
    Variable._execution_engine.queue_callback(callback)  # noqa: SLF001


def drop_arrivals(parameters: Iterable[nn.Parameter]) -> None:
    """Drop the hooks of parameters that watches that are gone have left."""
    for parameter in parameters:
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        own_hooks.drop(lambda hook: isinstance(hook, _Arrival) and hook.is_dead, hooks)
