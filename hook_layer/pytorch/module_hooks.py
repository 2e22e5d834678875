"""Sets forward hooks on modules only in steps that need them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from weakref import WeakKeyDictionary

from torch import nn

from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import ModuleCall, ModuleCallback
from hook_layer.weak_method import WeakMethod

__all__ = ["ModuleHooks"]


class ModuleHooks:
    """Calls back after the forward pass of chosen modules.

    Compiled code neither notices new hooks nor is recompiled when they are removed. So a hook that
    torch.compile has seen stays.

    Args:
        callback: The method. Its owner is referenced weakly.
        always_call: Whether to call it, with outputs None, after passes that raise.
    """

    def __init__(self, callback: ModuleCallback, *, always_call: bool = False) -> None:
        self._callback = WeakMethod(callback)  # its owner owns this
        self._always_call = always_call
        self._numbers: dict[nn.Module, int] = {}
        self._calls: WeakKeyDictionary[nn.Module, ModuleCall] = WeakKeyDictionary()
        self._compiled: set[nn.Module] = set()

    @property
    def is_watching(self) -> bool:
        """Whether any module is watched."""
        return bool(self._numbers)

    def watch_only(self, modules: AbstractSet[nn.Module]) -> None:
        """Watch exactly these modules, and the compiled ones."""
        for module in self._numbers.keys() - modules - self._compiled:
            own_hooks.take(module, self._numbers.pop(module))
        self._watch(modules)

    def keep(self, modules: AbstractSet[nn.Module]) -> None:
        """Watch these modules until `stop`, because torch.compile is about to see them."""
        self._compiled |= modules
        self._watch(modules)

    def stop(self) -> None:
        """Remove all hooks."""
        self._compiled.clear()
        self.watch_only(frozenset())

    def _watch(self, modules: AbstractSet[nn.Module]) -> None:
        callback = self._callback()
        if callback is None:
            return
        for module in modules - self._numbers.keys():
            call = self._calls.get(module)
            if call is None:
                call = self._calls[module] = ModuleCall(module, callback, self._keep_one)
            always_call = self._always_call and module not in self._compiled
            self._numbers[module] = own_hooks.put(module, call, always_call=always_call)

    def _keep_one(self, module: nn.Module) -> None:
        self.keep({module})
