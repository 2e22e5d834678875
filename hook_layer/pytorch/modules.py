"""Registered modules, and the names of their parts and parameters.

Names are those of the model without wrappers: torch.compile, DistributedDataParallel,
FullyShardedDataParallel and activation checkpointing add no part to a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Any, Final
from weakref import WeakKeyDictionary

from torch import nn

from hook_layer.errors import HookConfigurationError
from hook_layer.pytorch.sharded_parameters import FlatPart, FlatParts
from hook_layer.pytorch.wrappers import (
    is_a_key,
    unwrapped_class,
    unwrapped_path,
    without_compile_wrapper,
    wrapped_in,
)

__all__ = ["RegisteredModules"]

_Parameters = dict[str, nn.Parameter]
_OWN_ATTRIBUTES: Final = frozenset(vars(nn.Module()))


class RegisteredModules:
    """Registered models and losses, without the wrappers of torch.compile.

    They are referenced weakly: a script may train many models in turn. The second model of a class
    `Net` is called `Net2`. If a module of a further model would have the name of another module,
    the names of all modules of that model begin with the model's, such as `Net2_fc`.

    Attributes:
        models: Names of the models.
        names: Names of all modules of the models, including the models and wrappers.
        losses: Names of the losses.
        flat_parts: This rank's parts of parameters in flat ones, by the parameters' full names.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all models and losses."""
        self.models: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self.names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self.losses: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._unregistered: WeakKeyDictionary[nn.Module, _Parameters] = WeakKeyDictionary()
        self._adopted: WeakKeyDictionary[nn.Module, _Parameters] = WeakKeyDictionary()
        self._found: FlatParts | None = None
        self.flat_parts: dict[str, FlatPart] = {}

    def add_model(self, module: nn.Module) -> nn.Module:
        """Add a model, and return it without its wrapper; raise an error if it cannot be added."""
        if not isinstance(module, nn.Module):
            raise HookConfigurationError(f"module={module!r} must be a torch.nn.Module")
        model = without_compile_wrapper(module)
        name = unwrapped_class(model)
        if model in self.names:
            raise HookConfigurationError(f"this {name} is already registered; register it once")
        for part in model.modules():
            if part in self.models:
                raise HookConfigurationError(
                    f"{self.models[part]}, a part of this {name}, is already registered, "
                    "and each forward pass would count as two steps; register only the "
                    f"{name}"
                )
        name = self._free_name(name)
        parts = ((path, part) for path, part in model.named_modules() if is_a_key(part))
        paths = {part: unwrapped_path(model, path) for path, part in parts}
        own = {part: path for part, path in paths.items() if part not in self.names}
        is_taken = not set(filter(None, own.values())).isdisjoint(self.names.values())
        prefix = f"{name}_" if is_taken else ""
        self.names.update({part: f"{prefix}{path}" if path else name for part, path in own.items()})
        self.find_flat_parts()
        self.names[model] = self.names[module] = self.models[model] = name
        return model

    def _free_name(self, name: str) -> str:
        """Return the name of a further model of a class."""
        taken = {*self.models.values()}
        numbered = (f"{name}{number}" for number in count(2))
        return name if name not in taken else next(n for n in numbered if n not in taken)

    def has_model(self, module: nn.Module) -> bool:
        """Return whether a model was added, with or without its wrapper."""
        return isinstance(module, nn.Module) and without_compile_wrapper(module) in self.models

    def add_loss(self, module: nn.Module) -> nn.Module | None:
        """Add a loss, and return it without its wrapper; None if it was added before."""
        if not isinstance(module, nn.Module):
            raise HookConfigurationError(
                f"loss_module={module!r} must be a torch.nn.Module, e.g. nn.CrossEntropyLoss()"
            )
        loss = without_compile_wrapper(module)
        if loss in self.losses:
            return None
        self.losses[loss] = unwrapped_class(loss)
        return loss

    def remove(self, module: nn.Module) -> bool:
        """Forget a model (with models in it) or a loss; return whether it was known."""
        parts = [part for part in module.modules() if is_a_key(part)]
        models = [part for part in parts if part in self.models]
        for model in models:
            for part in model.modules():
                if is_a_key(part):
                    self.names.pop(part, None)
            for known in (self.models, self._unregistered, self._adopted):
                known.pop(model, None)
        is_loss = is_a_key(module) and self.losses.pop(module, None) is not None
        return is_loss or bool(models)

    def named_parameters(self, model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
        """Return a model's parameters by full name, including those without a shape yet."""
        prefix = self.models[model]
        if self._found is None:
            self._found = FlatParts()
        adopted = self._adopted.get(model, {}).items()
        for path, parameter in chain(model.named_parameters(), adopted):
            plain = unwrapped_path(model, path)
            for original, part in self._found.named(plain, parameter).items():
                name = f"{prefix}_{original}"
                if part is not None:
                    self.flat_parts[name] = part
                yield name, parameter

    def find_flat_parts(self) -> None:
        """Search for flat parameters again: models may have been wrapped since."""
        self._found = None
        self.flat_parts.clear()

    def adopt_unregistered(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Add and return parameters that have a gradient but are not listed by the model."""
        if model not in self._unregistered:
            self._unregistered[model] = _unregistered_parameters(model)
        waiting = self._unregistered[model]
        trained = {name: p for name, p in waiting.items() if p.grad is not None}
        if trained:
            self._adopted.setdefault(model, {}).update(trained)
            self._unregistered[model] = {n: p for n, p in waiting.items() if n not in trained}
        return trained

    def all_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the parameters of all models with their full names."""
        for model in self.models:
            yield from self.named_parameters(model)

    def named_like(self, is_wanted: Callable[[str], bool]) -> set[nn.Module]:
        """Return the modules with a wanted name, except losses and wrappers."""
        return {
            module
            for module, name in self.names.items()
            if module not in self.losses and wrapped_in(module) is None and is_wanted(name)
        }


def _unregistered_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return parameters in plain lists, tuples and dicts that the model does not list.

    Their names are those that they would have as submodules: `blocks.0.weight`. The flat parameter
    of FSDP1 is ignored, because the listed parameters are views of it.
    """
    seen = {id(parameter) for parameter in model.parameters()}
    found = {}
    for path, part in model.named_modules():
        if wrapped_in(part) is not None:  # FSDP keeps a list of flat parameters
            continue
        for attribute, value in vars(part).items():
            if attribute in _OWN_ATTRIBUTES:
                continue
            prefix = f"{path}.{attribute}" if path else attribute
            for name, parameter in _in_container(value, prefix):
                if id(parameter) not in seen and not getattr(parameter, "_is_flat_param", False):
                    seen.add(id(parameter))
                    found[name] = parameter
    return found


def _in_container(value: Any, prefix: str) -> Iterator[tuple[str, nn.Parameter]]:
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    for key, item in [*value.items()] if isinstance(value, dict) else []:
        name = f"{prefix}.{key}"
        if isinstance(item, nn.Parameter):
            yield name, item
        elif isinstance(item, nn.Module):
            yield from item.named_parameters(name)
