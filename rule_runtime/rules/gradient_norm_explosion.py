"""GradientNormExplosion: gradients that become many times larger than they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.missing import missing_gradients
from rule_runtime.facts.selection import evidence, is_training
from rule_runtime.numerics.series_memory import NumberSeries, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["GradientNormExplosion"]

_NUM_FIRST: Final = 5
"""First norms, whose median is the level of the beginning."""

_NUM_LATEST: Final = 20
"""Norms before the last one, whose median is the level before."""

_LEAST_GROWTH: Final = 3
"""Times the level before: gradients that were large from the start may only have large targets."""

_NORM: Final = "gradients"

_REMEDY: Final = (
    "Clip gradients by their norm, lower the learning rate or warm it up. In recurrent networks "
    "use gated cells or an orthogonal initialisation. Look at the batches of these steps."
)


class _Excess(NamedTuple):
    margin: float
    norm: float
    limit: float
    message: str


class GradientNormExplosion(Rule):
    """Detects gradients whose norm grows many times over, or dwarfs the weights.

    How it decides:
        The usual norm of all gradients of a worker is the median of the 20 saved before or, if
        larger, of the first 5. The norm must not exceed `growth_factor` times the usual one. Nor
        may it exceed `weight_factor` times the norm of all weights, if it is three times a usual
        norm that is below the weights. Gradients are those before clipping.

    Parameters:
        growth_factor: Times the usual norm of the gradients.
        weight_factor: Times the norm of the weights.
        patience: Saved steps in a row.

    What to try:
        Gradient clipping, a lower learning rate or a warm-up; gated cells in recurrent networks.
    """

    growth_factor: Annotated[float, GreaterThan(1), Unit("times")] = 20.0
    weight_factor: Annotated[float, GreaterThan(0), Unit("times")] = 10.0
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 2

    collections = (
        CollectionConfig("gradients", {"save_interval": "10"}),
        CollectionConfig("weights", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the norm of all gradients with earlier ones and with the weights.

        Args:
            step: What was saved at the step.
            memory: The first and latest norms of at most 32 workers.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} there are no gradients")
        gradients = _norms(step, "gradients")
        if not gradients:
            unknown = missing_gradients(step.tensors(collections=("gradients",)), ("l2",))
            raise unknown or Missing("the norm of all gradients is not finite")
        weights = _norms(step, "weights")
        history = SeriesMemory(memory, num_first=_NUM_FIRST, num_latest=_NUM_LATEST + 1)
        found = {}
        for series in history.add({(_NORM, worker): norm for worker, norm in gradients.items()}):
            worker = series[1]
            excess = self._excess(history.of(series), weights.get(worker, 0.0))
            num_bad = history.streak(series, is_bad=excess is not None)
            if excess is not None and num_bad >= self.patience:
                found[worker] = excess
        memory.update(history.to_json())
        if not found:
            return Passed()
        worker = min(found, key=lambda worker: (-found[worker].margin, worker))
        return self._finding(step, worker, found[worker])

    def _excess(self, norms: NumberSeries, weights: float) -> _Excess | None:
        """Return how far the latest norm is too large."""
        if norms.count <= _NUM_FIRST:
            return None
        norm = float(norms.latest[-1])
        usual = float(max(np.median(norms.latest[:-1]), np.median(norms.first)))
        limits = [(self.growth_factor * usual, f"{self.growth_factor:g} times what it was before")]
        if usual < weights and norm > _LEAST_GROWTH * usual:
            of_weights = f"{self.weight_factor:g} times the norm of the weights"
            limits.append((self.weight_factor * weights, of_weights))
        limit, message = min(limits)
        return _Excess(norm / limit, norm, limit, message) if 0 < limit < norm else None

    def _finding(self, step: StepView, worker: str, excess: _Excess) -> IssueFound:
        """Return the finding, which names the largest gradient of the worker."""
        rows = step.tensors(collections=("gradients",))
        sizes = np.nan_to_num(rows.column("l2"))
        own = [at for at in range(len(rows)) if rows.workers[at] == worker]
        return IssueFound(
            evidence(
                step,
                rows,
                min(own, key=lambda at: (-sizes[at], rows.names[at])),
                measure="norm_of_all_gradients",
                value=excess.norm,
                threshold=excess.limit,
                message=f"is the largest of the gradients, whose norm {excess.norm:.3g} is more "
                f"than {excess.message}",
                remedy=_REMEDY,
            )
        )


def _norms(step: StepView, collection: str) -> dict[str, float]:
    """Return the norm of all tensors of a collection together, by worker; finite ones only."""
    rows = step.tensors(collections=(collection,))
    sizes = rows.column("l2")
    norms = {}
    for worker in sorted(set(rows.workers)):
        own = sizes[[of == worker for of in rows.workers]]
        known = np.sort(own[np.isfinite(own)])
        with np.errstate(over="ignore"):
            norm = float(np.sqrt(np.sum(known**2))) if known.size else np.nan
        if np.isfinite(norm):
            norms[worker] = norm
    return norms
