"""VanishingGradient: a gradient so small that its parameters no longer learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.called_layers import count_later
from rule_runtime.facts.cancelled_gradients import cancelled_biases
from rule_runtime.facts.selection import evidence, finite_means, worst
from rule_runtime.numerics.row_memory import RowMemory, row_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["VanishingGradient"]

_REMEDY: Final = (
    "Check whether the layer gets any gradient at all (dead units, a detached graph, a frozen "
    "input); then try normalisation layers, residual connections, an initialisation made for the "
    "model's activation, one that does not saturate, or loss scaling in half precision."
)


class VanishingGradient(Rule):
    """Finds gradients whose mean absolute value is next to zero.

    How it decides:
        At each step, for each tensor of the collection `gradients` and each worker, mean(|g|) over
        the finite elements is compared with `threshold`; strictly smaller fires. The smallest of
        the step is the evidence. A gradient without finite elements is left to ExplodingTensor; a
        parameter that has no gradient (frozen or unused) is not saved and so is not judged.
        The gradient of a bias in front of a normalisation layer is zero but for rounding, because
        that layer takes the mean out. So `<layer>.bias` is passed over where the gradient of
        `<layer>.weight` has not vanished and is more than a thousand times as large: the layer gets
        its gradients, and in the sum that is the bias's they cancel out.
        With a `max_share` below 1 a mean(|g|) must also be smaller than that share of the largest
        one of its worker at the step: a model whose loss is next to zero has small gradients
        everywhere, and nothing has vanished on its way. Where all of them are exactly zero they
        count if a loss was saved that is not. Those of a part of the model whose loss is multiplied
        by 0 at first, as an adversary's, do not count. Such a part ends with the layer that is
        called last, or with one whose output a loss compares or the model returns while no layer
        with a gradient takes it. There all gradients are zero, that of the bias, or of a weight
        whose input is not zero; and what is made of its output is not all one number, as behind
        dead units. From training step 100,000 on zeros count there, too; and from the first step on
        where all gradients of a worker have been zero since the beginning. With a `patience` above
        1 it fires at the last of as many saved steps in a row of one tensor; of more than 2,048
        tensors, of all workers together, as many are followed.

    Parameters:
        threshold: Mean absolute value below which a gradient counts as vanished.
        max_share: Share of the largest gradient of the worker that it must be below; 1 for any.
        patience: Saved steps in a row.

    What to try:
        Look for dead ReLUs and detached parts of the graph; use ReLU-like activations,
        normalisation, residual connections, a Kaiming or Xavier initialisation, or loss scaling in
        half precision.
    """

    threshold: Annotated[float, AtLeast(0), Unit("mean of absolute values")] = 1e-7
    max_share: Annotated[float, GreaterThan(0), AtMost(1), Unit("times the largest gradient")] = 1.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1

    collections = (CollectionConfig("gradients", {"save_interval": "500"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare mean(|g|) with the threshold, and with the largest one.

        Args:
            step: What was saved at the step.
            memory: With a share `began`: workers that ever had a gradient that was not zero. With a
                patience `rows`: for how many saved steps each of at most 2,048 gradients had
                vanished.
        """
        rows = step.tensors(collections=("gradients",))
        if not len(rows):
            return NotEvaluated("no tensor of the collection gradients was saved")
        abs_mean = rows.column("abs_mean")
        if not float(np.fmin.reduce(abs_mean)) < np.inf:
            return NotEvaluated("no gradient has a finite element")
        began = self._began(rows, abs_mean, memory)
        vanished = abs_mean < self._thresholds(step, rows, abs_mean)
        if vanished.any():
            vanished &= ~cancelled_biases(step, rows, abs_mean, least=self.threshold)
            if self.max_share < 1:
                vanished &= ~count_later(step, rows) | ~np.isin(rows.workers, began)
        elif self.patience == 1:
            return Passed()
        streaks = self._streaks(rows, vanished, memory)
        found = vanished & (streaks >= self.patience)
        if not found.any():
            return Passed()
        at = worst(rows, np.where(found, abs_mean, np.nan), largest=False)
        lasted = f", for {streaks[at]} saved steps" if self.patience > 1 else ""
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="abs_mean",
                value=abs_mean[at],
                threshold=self.threshold,
                message=f"mean(|g|) {abs_mean[at]:.3g} < {self.threshold:g}{lasted}",
                remedy=_REMEDY,
            )
        )

    def _began(
        self, rows: TensorRows, abs_mean: npt.NDArray[np.float64], memory: Memory
    ) -> list[str]:
        """Return the workers that ever had a gradient that is not zero, if that is asked for."""
        if self.max_share >= 1:
            return []
        known: list[str] = memory.get("began", [])
        if len(known) < len(set(rows.workers)):
            has_any = {rows.workers[at] for at in np.flatnonzero(abs_mean != 0)}
            memory["began"] = known = sorted(has_any.union(known))
        return known

    def _thresholds(
        self, step: StepView, rows: TensorRows, abs_mean: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64] | float:
        """Return below what the gradient of each row [R] has vanished, or of all of them."""
        if self.max_share >= 1:
            return self.threshold
        thresholds = np.full(len(rows), self.threshold)
        workers = np.array(rows.workers)
        for worker in set(rows.workers):
            own = workers == worker
            largest = float(np.fmax.reduce(abs_mean[own]))
            # A loss that has reached 0 has no gradient, and no need of one.
            if largest > 0 or not _has_loss(step, worker):
                thresholds[own] = np.fmin(self.threshold, self.max_share * largest)
        return thresholds

    def _streaks(
        self, rows: TensorRows, vanished: npt.NDArray[np.bool_], memory: Memory
    ) -> npt.NDArray[np.int64]:
        """Return for how many saved steps the gradient of each row [R] has vanished by now."""
        if self.patience == 1:
            return vanished.astype(np.int64)
        keys = row_keys(rows.names, rows.workers)
        known = RowMemory(memory.get("rows", ""))
        streaks = known.update(keys, np.zeros(len(keys), np.uint32), vanished)
        memory["rows"] = known.to_json()
        return streaks


def _has_loss(step: StepView, worker: str) -> bool:
    """Tell whether a loss of a worker was saved that is not zero."""
    rows = step.tensors(collections=("losses",))
    own = np.array([of == worker for of in rows.workers], dtype=bool)
    return bool((np.abs(finite_means(rows)[own]) > 0).any())
