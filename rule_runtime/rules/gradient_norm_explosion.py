"""GradientNormExplosion: detects gradients whose norm grows many times over."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from rule_runtime.detectors.curves import LEVEL
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Unit
from rule_runtime.facts.loss_curves import CurveRule, Finding, Points
from rule_runtime.facts.missing import missing_gradients
from rule_runtime.facts.selection import saved_every, worst
from rule_runtime.numerics.series_memory import NumberSeries
from rule_runtime.trial.step_view import StepView

__all__ = ["GradientNormExplosion"]


_APART: Final = 5
"""Steps between two high norms: a few large batches in a row are no explosion."""


class GradientNormExplosion(CurveRule):
    """Detects gradients whose norm grows many times over.

    How it decides:
        The rule computes the norm of all gradients of a rank, before clipping. The usual norm is
        the median of the 10 before or, if that is larger, of the first 5. More than `growth_factor`
        times that fires, at `patience` saved steps in a row that are 5 steps apart, and at all
        between them.

    Parameters:
        patience: Saved steps in a row.
        growth_factor: Times the usual norm of the gradients.
        weight_factor: Accepted and ignored.

    What to try:
        Clip gradients by their norm, lower the learning rate or warm it up. In recurrent networks
        use gated cells or an orthogonal initialisation.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 2
    growth_factor: Annotated[float, GreaterThan(1), Unit("times")] = 20.0
    weight_factor: Annotated[float, GreaterThan(0), Unit("times")] = 10.0

    collections = saved_every(10, "gradients")
    noun = "gradient norm"
    measure = "norm_of_all_gradients"
    compares_together = True

    @property
    def _window(self) -> tuple[int, int]:
        return self.num_first + self.patience, LEVEL

    def needs(self) -> Needs:
        """Return the length of the curve from which steps in a row are counted, and `patience`."""
        return Needs(elements=self._window[0] + self.patience - 1, noun=self.noun)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the latest norms with the usual one.

        Memory: The state of `CurveRule`; `steps`: the latest steps; `since`: step of the first of
        consecutive large norms.
        """
        outcome = super().check(step, memory)
        if isinstance(outcome, NotApplicable):
            return outcome
        memory["steps"] = [*memory.get("steps", []), step.mode_step][-self.patience :]
        if not isinstance(outcome, IssueFound):
            memory.pop("since", None)
            return outcome
        since = memory.setdefault("since", memory["steps"][0])
        is_long = step.mode_step - since >= _APART * (self.patience - 1)
        return outcome if is_long else Passed()

    def _points(self, step: StepView) -> Points:
        """Return the norm of all gradients per worker; a finding names the largest gradient."""
        rows = step.tensors(collections=("gradients",))
        sizes = rows.column("l2")
        found = Points(rows, {}, {})
        for worker in sorted(set(rows.workers)):
            is_known = [of == worker for of in rows.workers] & np.isfinite(sizes)
            with np.errstate(over="ignore"):
                norm = float(np.sqrt(np.sum(np.sort(sizes[is_known]) ** 2)))
            if is_known.any() and np.isfinite(norm):
                found.values["gradients", worker] = norm
                own = np.where(is_known, sizes, np.nan)
                found.at["gradients", worker] = worst(rows, own, largest=True)
        if not found.at:
            unknown = missing_gradients(rows, ("l2",))
            raise unknown or Missing("the norm of all gradients is not finite")
        return found

    def _detect(self, series: NumberSeries) -> Finding | None:
        """Compare the latest norms with the usual one."""
        before, now = series.latest[: -self.patience], series.latest[-self.patience :]
        limit = self.growth_factor * float(max(np.median(before), np.median(series.first)))
        if not 0 < limit < now.min():
            return None
        return Finding(
            float(now[-1]),
            limit,
            f"is the largest of the gradients, whose norm {now[-1]:.3g} is more than "
            f"{self.growth_factor:g} times what it was before",
        )
