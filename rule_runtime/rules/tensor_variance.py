"""TensorVariance: detects tensors whose variance is too large or too small."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, Memory, Unit
from rule_runtime.engine.selection import SelectedTensorsRule
from rule_runtime.facts.saved_tensors import num_not_finite
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["TensorVariance"]


class TensorVariance(SelectedTensorsRule):
    """Detects tensors whose variance is too large or too small.

    How it decides:
        The rule computes the variance of the finite elements of each selected tensor. It reports
        the tensor that exceeds a threshold by the largest ratio.

    Parameters:
        collection_names: Collections to evaluate; required without `tensor_regex`.
        tensor_regex: Regular expressions of tensors to evaluate.
        max_threshold: Largest variance that passes.
        min_threshold: Smallest variance that passes; required without `max_threshold`.

    What to try:
        If it is too large, lower the learning rate, clip gradients, or normalise inputs and
        activations. If it is too small, use a Kaiming or Xavier initialisation, check that the
        inputs differ, and look for saturated or dead layers.
    """

    max_threshold: Annotated[float | None, AtLeast(0), Unit("variance")] = None
    min_threshold: Annotated[float | None, AtLeast(0), Unit("variance")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        largest, smallest = self.max_threshold, self.min_threshold
        if largest is None and smallest is None:
            raise ParameterError(
                "TensorVariance: no threshold to compare with; give max_threshold, min_threshold "
                "or both"
            )
        if largest is not None and smallest is not None and largest < smallest:
            raise ParameterError(
                f"TensorVariance: max_threshold is {largest:g}, but must be at least "
                f"min_threshold, which is {smallest:g}"
            )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the variances of the step with the thresholds."""
        rows = self.evaluated_tensors(step)
        num_finite = rows.column("size") - num_not_finite(rows)
        largest = np.inf if self.max_threshold is None else self.max_threshold
        smallest = -np.inf if self.min_threshold is None else self.min_threshold
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            variance = np.where(num_finite > 1, rows.column("std") ** 2, np.nan)
            if np.isnan(variance).all():
                raise Missing("no selected tensor has two or more finite elements")
            excess = np.where(variance > largest, variance / largest, 0.0)
            excess = np.where(variance < smallest, smallest / variance, excess)
        at = worst(rows, np.where(np.isnan(variance), np.nan, excess), largest=True)
        if excess[at] == 0:
            return Passed()
        is_large = variance[at] > largest
        threshold, than = (largest, "more than") if is_large else (smallest, "less than")
        message = f"the variance is {variance[at]:.3g}, {than} {threshold:g}"
        return finding(self, step, (rows, at), ("variance", variance[at], threshold), message)
