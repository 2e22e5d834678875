"""Caches step runners on the functions whose steps they run.

Keras makes a new function whenever a model is compiled, for the loss and the optimiser that it has
then. The runner of the old function goes with that function. The model owns the function, so the
hook keeps no model in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet, ref

from hook_layer.keras.step_runner import BaseStepRunner

__all__ = ["RunnerCache"]

_ATTRIBUTE: Final = "_stepwatch_runner"
"""What a runner depends on (weak references to its cache and model, and the rest), and it."""


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
        known = vars(function).get(_ATTRIBUTE)
        if known is None or known[0] != key:
            known = vars(function)[_ATTRIBUTE] = key, make()
            self._functions.add(function)
        runner: BaseStepRunner = known[1]
        return runner

    def clear(self) -> None:
        """Remove all runners from their functions."""
        for function in list(self._functions):
            key, _ = vars(function).get(_ATTRIBUTE, ((None,), None))
            if key[0] == ref(self):
                del vars(function)[_ATTRIBUTE]
        self._functions.clear()
