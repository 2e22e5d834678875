"""VanishingGradient: a gradient so small that its parameters no longer learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.cancelled_gradients import cancelled_biases
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.evaluation.selection import evidence, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["VanishingGradient"]

_REMEDY: Final = (
    "Check whether the layer gets any gradient at all (dead ReLU, detached graph, frozen input); "
    "then try ReLU-like activations, normalisation layers, residual connections, Kaiming or Xavier "
    "initialisation, or loss scaling in half precision."
)


class VanishingGradient(Rule):
    """Finds gradients whose mean absolute value is next to zero.

    What it detects:
        A parameter whose gradient has a mean absolute value below `threshold`, at any step and on
        any worker. A gradient that is exactly zero, as that of a layer behind dead units, counts.

    Why it matters:
        Such a parameter hardly moves however long the training runs, and nothing in front of it
        learns from the loss either.

    How it decides:
        At each step, for each tensor of the collection `gradients` and each worker, mean(|g|) over
        the finite elements is compared with `threshold`; strictly smaller fires. The smallest of
        the step is the evidence. A gradient without finite elements is left to ExplodingTensor; a
        parameter that has no gradient (frozen or unused) is not saved and so is not judged.
        The gradient of a bias in front of a normalisation layer is zero but for rounding, because
        that layer takes the mean out. So `<layer>.bias` is passed over where the gradient of
        `<layer>.weight` has not vanished and is more than a thousand times as large: the layer gets
        its gradients, and in the sum that is the bias's they cancel out.

    Parameters:
        threshold: Mean absolute value below which a gradient counts as vanished.

    What to try:
        Look for dead ReLUs and detached parts of the graph; use ReLU-like activations,
        normalisation, residual connections, a Kaiming or Xavier initialisation, or loss scaling in
        half precision.

    Known false alarms:
        Biases whose gradient is zero by construction and that are not called as above; embeddings
        of which a batch touches few rows; losses that are scaled down by a large factor.

    Source:
        The built-in rule of the same name of Amazon SageMaker Debugger.
    """

    threshold: Annotated[float, AtLeast(0), Unit("mean of absolute values")] = 1e-7

    collections = (CollectionConfig("gradients", {"save_interval": "500"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the smallest mean(|g|) of the step with the threshold.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = step.tensors(collections=("gradients",))
        if not len(rows):
            return NotEvaluated("no tensor of the collection gradients was saved")
        abs_mean = rows.column("abs_mean")
        smallest = float(np.fmin.reduce(abs_mean))
        if not smallest < np.inf:
            return NotEvaluated("no gradient has a finite element")
        if smallest >= self.threshold:
            return Passed()
        is_cancelled = cancelled_biases(rows, abs_mean, least=self.threshold)
        sizes = np.where(is_cancelled, np.nan, abs_mean)
        if not (sizes < self.threshold).any():
            return Passed()
        at = worst(rows, sizes, largest=False)
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="abs_mean",
                value=sizes[at],
                threshold=self.threshold,
                told=f"mean(|g|) {sizes[at]:.3g} < {self.threshold:g}",
                remedy=_REMEDY,
            )
        )
