"""VanishingGradient: a gradient so small that its parameters no longer learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, Memory, Rule, Unit

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

    Parameters:
        threshold: Mean absolute value below which a gradient counts as vanished.

    What to try:
        Look for dead ReLUs and detached parts of the graph; use ReLU-like activations,
        normalisation, residual connections, a Kaiming or Xavier initialisation, or loss scaling in
        half precision.

    Known false alarms:
        Biases in front of a normalisation layer, whose gradient is zero by construction; embeddings
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
        comparable = np.where(np.isnan(abs_mean), np.inf, abs_mean)
        smallest = comparable.min()
        if smallest == np.inf:
            return NotEvaluated("no gradient has a finite element")
        if smallest >= self.threshold:
            return Passed()
        # Of equal values the first by name, so that the order of the tensors does not matter.
        at = min(
            np.flatnonzero(comparable == smallest), key=lambda i: (rows.names[i], rows.workers[i])
        )
        value = float(smallest)
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=rows.workers[at],
                tensor=rows.names[at],
                measure="abs_mean",
                value=value,
                threshold=self.threshold,
                sentence=f"{rows.names[at]}: mean(|g|) {value:.3g} < {self.threshold:g}",
                remedy=_REMEDY,
            )
        )
