"""Calls methods that a subclass of `Hook` overrides, like the original library does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from hook_layer.pytorch.calls import ModuleCall, register_hook
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.wrappers import is_a_key

if TYPE_CHECKING:
    from hook_layer.pytorch import Hook

__all__ = ["OverriddenMethods", "named_module"]

_OF_MODULES = ("forward_hook", "_write_inputs", "_write_outputs")


@dataclass(frozen=True)
class OverriddenMethods:
    """Lists the original's methods that a subclass of `Hook` overrides.

    An overridden method replaces the hook's own capture of the same tensors. Otherwise a subclass
    could not skip a tensor, and inputs and outputs would be counted twice.

    Attributes:
        begins_steps: `forward_pre_hook`, called before each forward pass of a model.
        captures_modules: `forward_hook`, `_write_inputs` or `_write_outputs`: the first is called
            after the forward pass of each module and registered loss, and calls the others.
        captures_gradients: `backward_hook`, called once for each parameter; what it returns is
            called with the gradient of each backward pass, before torch adds it to `.grad`.
    """

    begins_steps: bool = False
    captures_modules: bool = False
    captures_gradients: bool = False

    @classmethod
    def of(cls, hook_type: type, base: type) -> OverriddenMethods:
        """Return the methods that a subclass overrides."""

        def overrides(*names: str) -> bool:
            return any(getattr(hook_type, name) is not getattr(base, name) for name in names)

        return cls(
            overrides("forward_pre_hook"), overrides(*_OF_MODULES), overrides("backward_hook")
        )

    def register(
        self, hook: Hook, model: nn.Module, registered: RegisteredModules
    ) -> Iterator[Any]:
        """Register the overridden methods, except `forward_pre_hook`; yield torch's handles."""
        if self.captures_modules:
            named = registered.named_like(lambda _: True)
            for module in model.modules():
                if is_a_key(module) and module in named:
                    yield from self.register_module(hook, module)
        if self.captures_gradients:
            for name, parameter in registered.named_parameters(model):
                if parameter.requires_grad:
                    method = hook.backward_hook(name)
                    yield register_hook(parameter.register_hook, method)

    def register_module(self, hook: Hook, module: nn.Module) -> Iterator[Any]:
        """Register the overridden methods with a module or a loss; yield torch's handles."""
        if self.captures_modules:
            call = ModuleCall(module, hook._call_forward_hook)  # noqa: SLF001 - part of the hook
            yield register_hook(module.register_forward_hook, call, with_kwargs=True)


@contextmanager
def named_module(module: nn.Module, name: str | None) -> Iterator[None]:
    """Set `module._module_name`, as the original does, for the time of a call.

    An attribute of this name that the module has already stays.
    """
    attributes = vars(module)
    if name is None or "_module_name" in attributes:
        yield
        return
    attributes["_module_name"] = name
    try:
        yield
    finally:
        attributes.pop("_module_name", None)
