"""Hooks on parameters and submodules, put there only for steps that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from hook_layer.pytorch.calls import ModuleCall, ModuleCallback, skip_compilation, uncompiled

__all__ = ["GradientWatch", "ModuleWatch"]


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
        skip_compilation(self._first_call, self._last_call, _call_after_backward)
        self._handles: dict[str, tuple[nn.Parameter, Any]] = {}
        self._arrived: dict[str, nn.Parameter] = {}
        self._is_queued = False

    @property
    def num_watched(self) -> int:
        """Number of watched parameters."""
        return len(self._handles)

    def new_step(self) -> None:
        """Forget a backward pass that never ended, because it raised."""
        self._is_queued = False
        self._arrived.clear()

    def watch(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Watch these parameters, by the names of their gradients, besides those watched."""
        for name, parameter in parameters.items():
            known = self._handles.get(name)
            if known is not None and known[0] is parameter:
                continue
            if known is not None:
                known[1].remove()
            register = parameter.register_post_accumulate_grad_hook
            handle = register(self._arrival(name, parameter))  # type: ignore[no-untyped-call]
            self._handles[name] = (parameter, handle)

    def unwatch(self) -> None:
        """Take all hooks off."""
        for _, handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._arrived.clear()

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
        return {name: p.grad for name, p in arrived.items() if p.grad is not None}

    def _arrival(self, name: str, parameter: nn.Parameter) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            self._arrived[name] = parameter
            if not self._is_queued:
                self._is_queued = True
                _call_after_backward(self._first_call)

        skip_compilation(arrived)
        return arrived

    def _first_call(self) -> None:
        # DistributedDataParallel queues its own end behind ours: let it average first.
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            _call_after_backward(self._last_call)
        else:
            self._last_call()

    def _last_call(self) -> None:
        self._is_queued = False
        self._on_backward_end()


class ModuleWatch:
    """Calls back after the forward pass of chosen modules.

    Compiled code neither notices hooks that come later nor is made anew when they go. So where
    torch.compile meets a hook, that hook stays.
    """

    def __init__(self, callback: ModuleCallback) -> None:
        self._callback = callback
        self._handles: dict[nn.Module, Any] = {}
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
        for module in modules - self._handles.keys():
            call = ModuleCall(module, self._callback, self._keep_one)
            self._handles[module] = module.register_forward_hook(call)

    def _keep_one(self, module: nn.Module) -> None:
        self.keep({module})


def _call_after_backward(callback: Callable[[], None]) -> None:
    # The way of DistributedDataParallel; there is no public one.
    Variable._execution_engine.queue_callback(callback)  # noqa: SLF001
