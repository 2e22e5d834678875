"""AllZero: detects tensors whose elements are all zero, or mostly zero."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtMost, GreaterThan, Memory, Unit
from rule_runtime.engine.selection import SelectedTensorsRule
from rule_runtime.facts.saved_tensors import num_not_finite
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst
from rule_runtime.trial.value_pairs import row_values

__all__ = ["AllZero"]

_ALL: Final = 100.0


class AllZero(SelectedTensorsRule):
    """Detects tensors whose elements are all zero, or mostly zero.

    How it decides:
        The rule computes the percentage of zero elements in each selected tensor. It reports the
        largest percentage that reaches `threshold`. NaN and infinite elements are not zero. With a
        `threshold` below 100 % the hook must save values.

    Parameters:
        collection_names: Collections to evaluate; required without `tensor_regex`.
        tensor_regex: Regular expressions of tensors to evaluate.
        threshold: Percentage of zero elements from which a tensor is reported.

    What to try:
        Look for dead layers, masks that hide everything, detached parts of the graph and inputs
        that were never filled. Initialise weights randomly.
    """

    threshold: Annotated[float, GreaterThan(0), AtMost(100), Unit("%")] = 100.0

    @property
    def needs_values(self) -> bool:
        """Whether the hook must save values; otherwise statistics suffice."""
        return self.threshold < _ALL

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest percentage of zero elements with the threshold."""
        rows = self.evaluated_tensors(step)
        percent = self._percentages(step, rows)
        if np.isnan(percent).all():
            raise Missing("no selected tensor was saved with values", step.how_to_save(rows.names))
        at = worst(rows, percent, largest=True)
        value = float(percent[at])
        if value < self.threshold:
            return Passed()
        size = int(rows.column("size")[at])
        message = f"{value:.4g} % of {size} elements are zero, at least {self.threshold:g} %"
        return finding(self, step, (rows, at), ("zero_percent", value, self.threshold), message)

    def _percentages(self, step: StepView, rows: TensorRows) -> npt.NDArray[np.float64]:
        """Return the percentage of zeros [R]; NaN if unknown."""
        l1, percent = rows.column("l1"), np.full(len(rows), np.nan)
        percent[(l1 == 0) & (num_not_finite(rows) == 0) & (rows.column("size") > 0)] = _ALL
        if not self.needs_values:
            percent[l1 > 0] = 0  # or less than the threshold
        unknown = np.flatnonzero(np.isnan(percent) & (rows.column("size") != 0))
        for at, value in row_values(step, rows.select(unknown)):
            if value.size and value.dtype.kind in "biufc":
                percent[unknown[at]] = _ALL * (1 - np.count_nonzero(value) / value.size)
        return percent
