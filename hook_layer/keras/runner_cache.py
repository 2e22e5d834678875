"""Caches step runners on the functions whose steps they run.

Keras makes a new function whenever a model is compiled, for the loss and the optimiser that it has
then. The runner of the old function goes with that function. The model owns the function, so the
hook keeps no model in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet, ref

from hook_layer.keras.step_runner import BaseStepRunner

__all__ = ["RunnerCache"]

_ATTRIBUTE: Final = "_stepwatch_runner"


@dataclass(frozen=True, slots=True)
class _Entry:
    """The runner of one function.

    Attributes:
        key: What the runner depends on: weak references to its cache and model, and the rest.
        runner: The runner.
    """

    key: tuple[Any, ...]
    runner: BaseStepRunner


class RunnerCache:
    """The step runners of one hook."""

    def __init__(self) -> None:
        self._functions: WeakSet[Callable[..., Any]] = WeakSet()

    def get(
        self,
        function: Callable[..., Any],
        model: Any,
        also: tuple[Any, ...],
        make: Callable[[], BaseStepRunner],
    ) -> BaseStepRunner:
        """Return the step runner of a function.

        Args:
            function: The function that Keras made.
            model: The model.
            also: What else the runner depends on; a change makes a new runner.
            make: Makes the runner.

        Raises:
            TypeError: `function` takes no attributes.
        """
        key = (ref(self), ref(model), *also)
        entry = vars(function).get(_ATTRIBUTE)
        if not isinstance(entry, _Entry) or entry.key != key:
            entry = vars(function)[_ATTRIBUTE] = _Entry(key, make())
            self._functions.add(function)
        return entry.runner

    def clear(self) -> None:
        """Remove all runners from their functions."""
        mine = ref(self)
        for function in list(self._functions):
            entry = vars(function).get(_ATTRIBUTE)
            if isinstance(entry, _Entry) and entry.key[0] == mine:
                del vars(function)[_ATTRIBUTE]
        self._functions.clear()
