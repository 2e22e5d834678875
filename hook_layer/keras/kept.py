"""What looks into the steps of a function is kept with that function.

Keras makes a function anew whenever a model is compiled, of the loss and the optimiser that it has
then: what was traced for the function before is gone with it. And since the model has the function,
and the hook has not, the hook keeps no model in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet, ref

from hook_layer.keras.inside import BaseInside

__all__ = ["KeptInsides"]

_NAME: Final = "_stepwatch_inside"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What looks into the steps of one function.

    Attributes:
        key: What it is made for: weakly the hook's `KeptInsides` and the model, and what else.
        inside: What looks into the steps.
    """

    key: tuple[Any, ...]
    inside: BaseInside


class KeptInsides:
    """What looks into the steps of functions, for one hook."""

    def __init__(self) -> None:
        self._functions: WeakSet[Callable[..., Any]] = WeakSet()

    def get(
        self,
        function: Callable[..., Any],
        model: Any,
        also: tuple[Any, ...],
        make: Callable[[], BaseInside],
    ) -> BaseInside:
        """Return what looks into the steps of a function.

        Args:
            function: The function that Keras made.
            model: The model.
            also: What else it is made for; if this changes, it is made anew.
            make: Makes it.

        Raises:
            TypeError: Nothing can be kept with what stands instead of the function.
        """
        key = (ref(self), ref(model), *also)
        kept = vars(function).get(_NAME)
        if not isinstance(kept, _Kept) or kept.key != key:
            kept = vars(function)[_NAME] = _Kept(key, make())
            self._functions.add(function)
        return kept.inside

    def forget(self) -> None:
        """Forget all."""
        mine = ref(self)
        for function in list(self._functions):
            kept = vars(function).get(_NAME)
            if isinstance(kept, _Kept) and kept.key[0] == mine:
                del vars(function)[_NAME]
        self._functions.clear()
