"""TensorVariance: a tensor whose elements vary too much or too little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, Memory, Unit
from rule_runtime.facts.selected_tensors import NONE_SAVED, SelectedTensorsRule
from rule_runtime.facts.selection import evidence, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["TensorVariance"]

_REMEDY: Final = (
    "Too large: lower the learning rate, clip gradients, normalise inputs and activations. Too "
    "small: use a Kaiming or Xavier initialisation, check that inputs differ at all, and look for "
    "saturated or dead layers."
)


class TensorVariance(SelectedTensorsRule):
    """Finds tensors whose variance is too large or too small.

    How it decides:
        At each step of any mode, for each selected tensor and worker, the variance of the finite
        elements, mean((x - mean(x))^2), is compared with the thresholds that were given; equal is
        no issue. Of several tensors the one farthest beyond a threshold, as a ratio, is the
        evidence. Statistics suffice. The variance is that of all elements of a tensor together, not
        of each unit. Tensors with fewer than two finite elements, scalars among them, have no
        variance that means anything and are not judged.

    Parameters:
        collection_names: Collections to look at; together with `tensor_regex`, their union. One of
            the two must be given.
        tensor_regex: Regular expressions of further tensors to look at.
        max_threshold: Variance above which a tensor is an issue; not tested unless given.
        min_threshold: Variance below which a tensor is an issue; not tested unless given. One of
            the two must be given.

    What to try:
        Another learning rate, gradient clipping, normalisation of inputs and activations, a Kaiming
        or Xavier initialisation.
    """

    max_threshold: Annotated[float | None, AtLeast(0), Unit("variance")] = None
    min_threshold: Annotated[float | None, AtLeast(0), Unit("variance")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        largest, smallest = self.max_threshold, self.min_threshold
        if largest is None and smallest is None:
            raise ParameterError(
                "TensorVariance: nothing to compare with; give max_threshold, min_threshold or both"
            )
        if largest is not None and smallest is not None and largest < smallest:
            raise ParameterError(
                f"TensorVariance: max_threshold is {largest:g}, but must be at least "
                f"min_threshold, which is {smallest:g}"
            )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the variances of the step with the thresholds.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = self.select(step)
        if not len(rows):
            return NONE_SAVED
        num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
        num_finite = rows.column("size") - num_bad
        with np.errstate(over="ignore"):
            variance = rows.column("std") ** 2
        variance = np.where(num_finite > 1, variance, np.nan)
        if np.isnan(variance).all():
            return NotEvaluated("no selected tensor has a variance: two finite elements are needed")
        largest = np.inf if self.max_threshold is None else self.max_threshold
        smallest = -np.inf if self.min_threshold is None else self.min_threshold
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            excess = np.where(variance > largest, variance / largest, 0.0)
            excess = np.where(variance < smallest, smallest / variance, excess)
        at = worst(rows, np.where(np.isnan(variance), np.nan, excess), largest=True)
        if excess[at] == 0:
            return Passed()
        value = float(variance[at])
        is_large = value > largest
        threshold = largest if is_large else smallest
        sign = ">" if is_large else "<"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="variance",
                value=value,
                threshold=threshold,
                message=f"variance {value:.3g} {sign} {threshold:g}",
                remedy=_REMEDY,
            )
        )
