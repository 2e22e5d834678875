"""Hooks on parameters and submodules, put there only for steps that need them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

__all__ = ["GradientWatch", "ModuleWatch"]

logger = logging.getLogger("stepwatch")

ModuleCallback = Callable[[str, Any, Any], None]
"""Called with a module's name, inputs and outputs after its forward pass."""


class GradientWatch:
    """Notices when the gradients of parameters arrive, and when the backward pass is over.

    A gradient is read when the whole backward pass has ended: by then the parameters' `.grad` are
    the sums over all paths, and in DistributedDataParallel over all workers.

    Args:
        on_backward_end: Called after each backward pass that reached a watched parameter.
    """

    def __init__(self, on_backward_end: Callable[[], None]) -> None:
        self._on_backward_end = on_backward_end
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

    def take(self) -> dict[str, Tensor]:
        """Return the gradients that arrived since the last call, by name."""
        arrived, self._arrived = self._arrived, {}
        return {name: p.grad for name, p in arrived.items() if p.grad is not None}

    def _arrival(self, name: str, parameter: nn.Parameter) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            self._arrived[name] = parameter
            if not self._is_queued:
                self._is_queued = True
                _call_after_backward(self._first_call)

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
    """Calls back after the forward pass of chosen modules."""

    def __init__(self, callback: ModuleCallback) -> None:
        self._callback = callback
        self._handles: dict[str, tuple[nn.Module, Any]] = {}

    def watch_only(self, modules: Mapping[str, nn.Module]) -> None:
        """Watch these modules, by name, and no others."""
        for name in self._handles.keys() - modules.keys():
            self._handles.pop(name)[1].remove()
        for name, module in modules.items():
            if name not in self._handles:
                handle = module.register_forward_hook(self._caller(name))
                self._handles[name] = (module, handle)

    def _caller(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def call(_: nn.Module, inputs: Any, outputs: Any) -> None:
            self._callback(name, inputs, outputs)

        return call


def _call_after_backward(callback: Callable[[], None]) -> None:
    # The way of DistributedDataParallel; there is no public one.
    Variable._execution_engine.queue_callback(callback)  # noqa: SLF001
