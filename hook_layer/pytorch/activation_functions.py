"""Finds activations that are called as functions, such as `torch.relu(x)`.

A `TorchFunctionMode` watches the first forward passes and then one in every `_EVERY_PASSES`. In
other passes it watches only the modules that called such a function. It is off for compiled code,
without gradients, and within attention layers in evaluation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hook_layer.guard import FailureLog
from hook_layer.pytorch.calls import register_hook
from hook_layer.pytorch.collections import is_layer
from hook_layer.pytorch.function_mode import ObservedCalls
from hook_layer.pytorch.wrappers import is_a_key
from hook_layer.weak_method import WeakMethod

__all__ = ["ActivationFunctions", "FunctionCallback"]

FunctionCallback = Callable[[str, "list[nn.Module]", Tensor | None, Tensor], None]
"""Called with `relu`, `sigmoid` or `tanh`, the stack of modules that the call is made in (innermost
last), the input (None if it was overwritten) and the output.
"""

_RELU: Final = (torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu, F.relu6)
_SIGMOID: Final = (
    *(torch.sigmoid, torch.sigmoid_, Tensor.sigmoid, Tensor.sigmoid_),
    torch.special.expit,
)
_TANH: Final = (torch.tanh, torch.tanh_, Tensor.tanh, Tensor.tanh_)
# Keyed by id, because a function of a tensor subclass may not be hashable.
_KINDS: Final[Mapping[int, str]] = {
    **{id(function): "relu" for function in _RELU},
    **{id(function): "sigmoid" for function in _SIGMOID},
    **{id(function): "tanh" for function in _TANH},
}
_FIRST_PASSES: Final = 2
"""Number of saved passes that are watched completely at first."""
_EVERY_PASSES: Final = 20
"""Interval of further complete looks, in saved passes: a model may change."""


class _Callers:
    """The known modules of a model that call activation functions."""

    def __init__(self) -> None:
        self.modules: WeakSet[nn.Module] = WeakSet()
        self.num_passes = 0

    def next_pass(self) -> bool:
        """Return whether the next pass must be watched completely."""
        self.num_passes += 1
        return self.num_passes <= _FIRST_PASSES or self.num_passes % _EVERY_PASSES == 0


class ActivationFunctions:
    """Reports activations that are called as functions in one pass of a model."""

    def __init__(self, callback: FunctionCallback, failures: FailureLog) -> None:
        self._callback = WeakMethod(callback)
        self._callers: WeakKeyDictionary[nn.Module, _Callers] = WeakKeyDictionary()
        self._known = _Callers()  # of the model that is called
        self._observed = ObservedCalls(self._on_call, failures, "functions")
        self._entrances: list[Any] = []
        self._is_looking = False
        self._thread = 0

    def look(self, model: nn.Module) -> None:
        """Watch this thread's calls until the forward pass of a model ends."""
        self.stop()
        if not torch.is_grad_enabled():
            return
        self._thread = threading.get_ident()
        self._known = self._callers.setdefault(model, _Callers())
        if self._known.next_pass() or model in self._known.modules:
            self._is_looking = True
            self._enter(model, ())
            return
        self._entrances = [
            register_hook(module.register_forward_pre_hook, self._enter)
            for module in self._known.modules
        ]
        self._is_looking = bool(self._entrances)

    def stop(self) -> None:
        """Stop watching."""
        if self._is_looking:
            self._is_looking = False
            while self._entrances:
                self._entrances.pop().remove()
            self._observed.end()

    def _enter(self, module: nn.Module, _: Any) -> None:
        """Watch the calls of a module."""
        if threading.get_ident() == self._thread and not self._observed.is_on:
            self._observed.begin(module, ends_with_module=True)

    def _on_call(self, function: Any, arguments: tuple[Any, ...], result: Any) -> None:
        kind, callback = _KINDS.get(id(function)), self._callback()
        if kind is None or callback is None or not isinstance(result, Tensor):
            return
        called = self._observed.called
        if called and not is_layer(kind, called[-1]):
            if is_a_key(called[-1]):
                self._known.modules.add(called[-1])
            given = next((value for value in arguments if isinstance(value, Tensor)), None)
            callback(kind, called, None if given is result else given, result)
