"""Finds the due parameters of a model, and caches them until the model changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.core.collector import Collector
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.tensor_elements import WHOLE, is_uninitialized

__all__ = ["GRADIENT_PREFIX", "DueParameters"]

GRADIENT_PREFIX = "gradient/"
_WEIGHT: Final = (CollectionKeys.WEIGHTS,)

_Due = dict[str, tuple[nn.Parameter, TensorPlan]]


class DueParameters:
    """Finds due parameters, and parameters whose gradients are due."""

    def __init__(self, registered: RegisteredModules, collector: Collector) -> None:
        self._registered = registered
        self._collector = collector
        self._known: WeakKeyDictionary[nn.Module, _Model] = WeakKeyDictionary()

    def look_again(self) -> None:
        """Check the models for changes before the cache is used again."""
        for model in self._known.values():
            model.is_checked = False

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()

    def parameters(self, model: nn.Module) -> _Due:
        """Return the due parameters of a model, by name."""
        return self._of(model, "")

    def gradients(self, model: nn.Module) -> _Due:
        """Return the parameters of a model whose gradients are due, by gradient name.

        Frozen parameters are left out because they get no gradient.
        """
        return self._of(model, GRADIENT_PREFIX)

    def _of(self, model: nn.Module, prefix: str) -> _Due:
        known = self._known.get(model)
        if known is None or not known.is_current():
            known = self._known[model] = _Model(model)
        key = (prefix, *self._collector.due_key)
        due = known.due.get(key)
        if due is None:
            named = {prefix + n: p for n, p in self._registered.named_parameters(model)}
            due = self._due(named, is_of_gradients=bool(prefix))
            if all(type(parameter) in WHOLE for parameter in named.values()):
                known.due[key] = due
        return due

    def _due(self, named: Mapping[str, nn.Parameter], *, is_of_gradients: bool) -> _Due:
        found: _Due = {}
        weights = frozenset[str]() if is_of_gradients else _unnamed_weights(named)
        for name, parameter in named.items():
            if is_of_gradients and not parameter.requires_grad:
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
    """The due parameters of a model, and a way to detect changes of the model.

    Attributes:
        due: What is due, by prefix and collections.
        is_checked: Whether the model was checked in this step.
    """

    def __init__(self, model: nn.Module) -> None:
        self.due: dict[tuple[Any, ...], _Due] = {}
        self.is_checked = True
        # The dicts, not the modules, so that nothing here keeps the model alive.
        self._parts = [(part._parameters, part._modules) for part in model.modules()]  # noqa: SLF001
        self._state = self._current_state()

    def is_current(self) -> bool:
        """Return whether the model has the same parts and parameters as before."""
        if not self.is_checked:
            self.is_checked = self._state == self._current_state()
        return self.is_checked

    def _current_state(self) -> list[tuple[int | bool, ...]]:
        state: list[tuple[int | bool, ...]] = []
        for parameters, modules in self._parts:
            state.append(tuple(map(id, modules.values())))
            own: list[Tensor] = [p for p in parameters.values() if p is not None]
            state += [tuple(map(id, own)), tuple([p.requires_grad for p in own])]
        return state
