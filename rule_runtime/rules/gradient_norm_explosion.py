"""GradientNormExplosion: gradients that become many times larger than they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import (
    Evidence,
    IssueFound,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.missing_reasons import why_no_gradient
from rule_runtime.facts.selection import is_training
from rule_runtime.numerics.series_memory import SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["GradientNormExplosion"]

_NUM_FIRST: Final = 5
_NUM_LATEST: Final = 20
_GROWTH: Final = 3
_NORM: Final = "gradients"
_REMEDY: Final = (
    "Clip gradients by their norm, lower the learning rate or warm it up; in recurrent networks "
    "use gated cells or an orthogonal initialisation; look at the batches of these steps."
)


class GradientNormExplosion(Rule):
    """Finds gradients whose norm grows many times over, or dwarfs the weights.

    How it decides:
        At each training step and for each worker the norm of all gradients is the root of the sum
        of the squares of their l2 norms. It fires if, `patience` saved steps in a row, this is more
        than `growth_factor` times the larger of two numbers: the median of the 20 saved before, and
        the median of the first 5; at the end of a training gradients are small, and their scatter
        says nothing. It fires as well if it is more than `weight_factor` times the norm of all
        saved weights, and three times the larger of those two numbers, which is below the norm of
        the weights: gradients that are large from the start have only large targets, or a loss that
        is summed over a batch. So the first
        5 saved steps are not judged. Gradients are judged as they are before a script clips them.
        Elements that are not finite do not count (NonFinite finds them). Of more than 32 workers
        the first 32 are judged.

    Parameters:
        growth_factor: Times the gradients' norm before.
        weight_factor: Times the weights' norm.
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
            memory: The first and latest norms of at most 32 workers: of fixed size.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} there are no gradients")
        gradients = _norms(step, "gradients")
        if not gradients:
            unknown = why_no_gradient(step.tensors(collections=("gradients",)), ("l2",))
            return NotEvaluated(unknown or "the norm of all gradients is not finite")
        weights = _norms(step, "weights")
        history = SeriesMemory(memory, num_first=_NUM_FIRST, num_latest=_NUM_LATEST)
        found: list[tuple[float, str, float, float, str]] = []
        for series in history.add({(_NORM, worker): norm for worker, norm in gradients.items()}):
            worker = series[1]
            norm, usual = gradients[worker], 0.0
            numbers = history.of(series)
            if numbers.count > _NUM_FIRST:
                usual = float(max(np.median(numbers.latest[:-1]), np.median(numbers.first)))
            limits = [(self.growth_factor * usual, "what it was before")]
            if norm > _GROWTH * usual > 0 and usual < weights.get(worker, 0.0):
                of_weights = self.weight_factor * weights.get(worker, 0.0)
                limits.append((of_weights, "the norm of the weights"))
            beyond = [(norm / limit, limit, of) for limit, of in limits if 0 < limit < norm]
            if history.streak(series, is_bad=bool(beyond)) >= self.patience and beyond:
                excess, limit, of = max(beyond)
                found.append((excess, worker, norm, limit, of))
        memory.update(history.to_json())
        if not found:
            return Passed()
        _, worker, norm, limit, of = min(found, key=lambda item: (-item[0], item[1]))
        return self._finding(step, worker, (norm, limit, of))

    def _finding(self, step: StepView, worker: str, seen: tuple[float, float, str]) -> IssueFound:
        """Return the finding, which names the largest gradient of the worker."""
        norm, limit, of = seen
        rows = step.tensors(collections=("gradients",))
        sizes = np.nan_to_num(rows.column("l2"))
        own = [at for at in range(len(rows)) if rows.workers[at] == worker]
        at = min(own, key=lambda at: (-sizes[at], rows.names[at]))
        name = rows.names[at]
        factor = self.weight_factor if of.endswith("weights") else self.growth_factor
        message = f"is the largest of the gradients, whose norm {norm:.3g} is more than {factor:g}"
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=worker,
                tensor=name,
                measure="norm_of_all_gradients",
                value=norm,
                threshold=limit,
                sentence=f"{name}: {message} times {of}",
                remedy=_REMEDY,
            )
        )


def _norms(step: StepView, collection: str) -> dict[str, float]:
    """Return the norm of all tensors of a collection together, by worker; finite ones only."""
    rows = step.tensors(collections=(collection,))
    norms: dict[str, float] = {}
    sizes = rows.column("l2")
    for worker in sorted(set(rows.workers)):
        own = np.sort(sizes[[at == worker for at in rows.workers]])
        known = own[np.isfinite(own)]
        norm = float(np.sqrt(np.sum(known**2))) if known.size else np.nan
        if np.isfinite(norm):
            norms[worker] = norm
    return norms
