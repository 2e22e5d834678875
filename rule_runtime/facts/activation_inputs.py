"""Inputs of tanh and sigmoid, and those that lie beyond the limits of their activation.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SATURATING", "ActivationInputs"]

SATURATING: Final = ("tanh", "sigmoid")
"""The activations that saturate; the hook fills the collections `{kind}_input` by type."""


class ActivationInputs:
    """Inputs of activations at a step.

    Args:
        step: The step.
        rows: The inputs [R].
        limits: Interval of inputs in which `tanh` and `sigmoid` are not saturated.
    """

    def __init__(
        self, step: StepView, rows: TensorRows, limits: Mapping[str, tuple[float, float]]
    ) -> None:
        self._step, self._rows, self._limits = step, rows, limits

    @cached_property
    def bounds(self) -> npt.NDArray[np.float64]:
        """The limits of each input; NaN if it goes into neither tanh nor sigmoid [R, 2].

        The collection tells which of the two it is, or else the name.
        """
        members = {
            (*pair, kind)
            for kind in SATURATING
            for inputs in [self._step.tensors(collections=(f"{kind}_input",))]
            for pair in zip(inputs.names, inputs.workers, strict=True)
        }
        found = np.full((len(self._rows), 2), np.nan)
        for at, pair in enumerate(zip(self._rows.names, self._rows.workers, strict=True)):
            by_type = [kind for kind in SATURATING if (*pair, kind) in members]
            by_name = [kind for kind in SATURATING if kind in pair[0].casefold()]
            for kind in (by_type or by_name)[:1]:
                found[at] = self._limits[kind]
        return found

    @property
    def are_within(self) -> npt.NDArray[np.bool_]:
        """Which inputs lie between their limits with all elements [R]."""
        low, high = self.bounds.T
        is_within = (self._rows.column("min") > low) & (self._rows.column("max") < high)
        return np.asarray(is_within & (self._rows.column("inf") == 0))

    def values_beyond(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield row and value of the inputs that lie beyond their limits."""
        beyond = np.flatnonzero(~self.are_within & ~np.isnan(self.bounds[:, 0]))
        for at, value in row_values(self._step, self._rows.select(beyond)):
            yield int(beyond[at]), value
