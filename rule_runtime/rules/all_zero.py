"""AllZero: a tensor that is zero throughout, or nearly so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtMost, GreaterThan, Memory, Unit
from rule_runtime.facts.selected_tensors import NONE_SAVED, SelectedTensorsRule
from rule_runtime.facts.selection import evidence, worst
from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["AllZero"]

_ALL: Final = 100.0
_ROUNDING: Final = 1e-4
"""Relative error of the bound that statistics give; accelerators add up in float32."""

_REMEDY: Final = (
    "Find the layer or the data that the zeros come from: a dead layer, a mask that hides all, a "
    "detached graph, an input that was never filled; weights that start at zero need an "
    "initialisation that breaks their symmetry."
)


class AllZero(SelectedTensorsRule):
    """Finds tensors all or most elements of which are zero.

    How it decides:
        At each step of any mode, for each selected tensor and worker, 100 * count(x == 0) / size is
        compared with `threshold`; equal fires. The tensor with the largest share is the evidence.
        NaN and infinite elements are not zero. Tensors without elements and texts are not judged.
        With a threshold of 100 the statistics tell everything. Below that they often prove that
        there are fewer zeros (at least (sum |x|)^2 / sum x^2 elements are not zero, by the
        inequality of Cauchy and Schwarz); else the value is read, which must have been saved.

    Parameters:
        collection_names: Collections to look at; together with `tensor_regex`, their union. One of
            the two must be given.
        tensor_regex: Regular expressions of further tensors to look at.
        threshold: Share of zero elements from which on a tensor is an issue.

    What to try:
        Look for dead layers, masks that hide all, detached parts of the graph and inputs that were
        never filled. Initialise weights so that units differ.
    """

    threshold: Annotated[float, GreaterThan(0), AtMost(100), Unit("%")] = 100.0

    @property
    def needs_values(self) -> bool:
        """Whether statistics may not suffice."""
        return self.threshold < _ALL

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest share of zero elements with the threshold.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = self.select(step)
        if not len(rows):
            return NONE_SAVED
        percent = self._percentages(step, rows)
        if np.isnan(percent).all():
            return NotEvaluated("the share of zeros in the selected tensors is not known")
        at = worst(rows, percent, largest=True)
        value = float(percent[at])
        if value < self.threshold:
            return Passed()
        size = int(rows.column("size")[at])
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="zero_percent",
                value=value,
                threshold=self.threshold,
                message=f"{value:.4g} % of {size} elements are zero, {self.threshold:g} % or more",
                remedy=_REMEDY,
            )
        )

    def _percentages(self, step: StepView, rows: TensorRows) -> npt.NDArray[np.float64]:
        """Return the share of zeros of each row [R]: 0 if it is known to be too small to matter."""
        size, l1, l2 = rows.column("size"), rows.column("l1"), rows.column("l2")
        num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
        with np.errstate(all="ignore"):
            num_others = np.where(l1 > 0, (l1 / l2) ** 2 * (1 - _ROUNDING), 0.0) + num_bad
            at_most = 100 * (1 - num_others / size)
        percent = np.full(len(rows), np.nan)
        percent[(at_most < self.threshold) & (size > 0)] = 0.0
        percent[(l1 == 0) & (num_bad == 0) & (size > 0)] = _ALL
        unknown = np.flatnonzero(np.isnan(percent) & ~(size == 0))
        if self.threshold == _ALL:
            percent[unknown[l1[unknown] > 0]] = 0.0
            unknown = unknown[~(l1[unknown] > 0)]
        for at, value in row_values(step, rows.select(unknown)):
            if value.size and value.dtype.kind in "biufc":
                percent[unknown[at]] = 100 * (1 - np.count_nonzero(value) / value.size)
        return percent
