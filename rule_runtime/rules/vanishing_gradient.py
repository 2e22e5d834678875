"""VanishingGradient: gradients so small that their parameters do not learn."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.gradient_stops import stopped_by
from rule_runtime.facts.layers import Layers
from rule_runtime.facts.losses import Losses
from rule_runtime.facts.missing import missing_gradients
from rule_runtime.facts.parameters import Gradients
from rule_runtime.facts.zero_gradients import zero_by_construction
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["VanishingGradient"]


class VanishingGradient(Rule):
    """Detects gradients whose mean absolute value is close to zero.

    How it decides:
        A gradient has vanished if its mean(|g|) is below `threshold` and below `max_share` of the
        rank's largest gradient. The rule reports the layer, in backward order, from which on all
        gradients have vanished; otherwise the smallest gradient. It ignores gradients that are
        zero by construction, such as those of biases before a normalisation.

    Parameters:
        threshold: Mean absolute value below which a gradient has vanished.
        max_share: Maximum share of the rank's largest gradient; 1 for any.
        patience: Saved steps in a row.

    What to try:
        Look for dead units and detached tensors between this layer and the loss. Use normalisation,
        residual connections, a Kaiming or Xavier initialisation, or loss scaling in half precision.
    """

    threshold: Annotated[float, AtLeast(0), Unit("mean of absolute values")] = 1e-7
    max_share: Annotated[float, GreaterThan(0), AtMost(1), Unit("times the largest gradient")] = 1.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1

    collections = saved_every(500, "gradients")

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare mean(|g|) with the threshold, and with the largest one.

        Memory: `rows`: number of consecutive steps for which each of at most 2,048 gradients has
        vanished.
        """
        gradients = step.fact(Gradients)
        rows, sizes = gradients.rows, gradients.sizes
        if not np.isfinite(sizes).any():
            missing = missing_gradients(rows, ("abs_mean",))
            raise missing or Missing("no saved gradient is finite", "see the rule NonFinite")
        streaks = self._vanished(step, gradients).astype(np.int64)
        if self.patience > 1:
            streaks = RowMemory(memory, rows.pairs).update(streaks > 0)
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        at = worst(rows, np.where(found, sizes, np.nan), largest=False)
        at, where = _vanishing_layer(step, rows.workers[at], found) or (at, "")
        lasted = f", for {streaks[at]} saved steps" if self.patience > 1 else ""
        message = f"mean(|g|) {sizes[at]:.3g} < {self.threshold:g}{lasted}{where}"
        measured = ("abs_mean" if sizes[at] else "zero_gradient", sizes[at], self.threshold)
        owner = gradients.owners[at] or rows.names[at]
        cause = None if sizes[at] else stopped_by(step, owner, rows.workers[at])
        return finding(self, step, (rows, at), measured, message, stopped_by=cause)

    def _vanished(self, step: StepView, gradients: Gradients) -> npt.NDArray[np.bool_]:
        """Return which gradients have vanished at this step [G]."""
        sizes, workers = gradients.sizes, np.array(gradients.rows.workers)
        bad = sizes < self.threshold
        if bad.any():
            bad &= ~gradients.is_cancelled
        unused = step.fact(zero_by_construction) if bad.any() else {}
        for worker in unused:
            own = workers == worker
            bad &= ~(own & np.isin(gradients.owners, list(unused[worker])))
            if self.max_share == 1:
                continue
            largest = float(np.fmax.reduce(sizes[own]))
            # A loss of exactly 0 has no gradient and needs none.
            is_small = sizes < self.max_share * largest if largest else _has_loss(step, worker)
            _, after = step.fact(Layers).before_and_after(worker, gradients.learning(worker))
            is_after = np.isin(gradients.owners, list(after)) & (sizes == 0)
            bad &= ~own | (is_small & ~is_after)
        return bad


def _has_loss(step: StepView, worker: str) -> bool:
    return any(abs(loss.value) > 0 for loss in step.fact(Losses).losses if loss.worker == worker)


def _vanishing_layer(
    step: StepView, worker: str, is_gone: npt.NDArray[np.bool_]
) -> tuple[int, str] | None:
    """Return the first gradient, in backward order, from which on all have vanished, and words.

    It is None if the layers are unknown, or if the first gradient has not vanished. Some gradients
    have vanished, `is_gone` [G].
    """
    gradients = step.fact(Gradients)
    own = [of == worker for of in gradients.rows.workers] & ~gradients.is_cancelled
    if is_gone[own].all():
        first = min(np.flatnonzero(own).tolist(), key=gradients.rows.names.__getitem__)
        return first, "; all gradients vanish, in the loss or right before it"
    rows = {gradients.owners[at]: at for at in np.flatnonzero(own).tolist() if gradients.owners[at]}
    found = None
    for layer in step.fact(Layers).in_order.get(worker, ()):
        ats = [rows[name] for name in sorted(layer & rows.keys())]
        if not is_gone[ats].all():
            break
        found = ats[0] if ats else found
    words = "; gradients vanish from this layer back to the first one"
    return None if found is None else (found, words)
