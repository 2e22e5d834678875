"""Losses that diverge, spike or oscillate, and gradient norms that explode."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.curves import LEVEL, WINDOW, divergence, first_jump, oscillation, spike
from rule_runtime.engine.curve_rule import CurveRule, Finding, Points
from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.rule import AtLeast, GreaterThan, Regex, Unit
from rule_runtime.engine.selection import saved_every, selected_collections
from rule_runtime.facts.missing import missing_gradients
from rule_runtime.facts.training_losses import named_points, training_points
from rule_runtime.numerics.series_memory import NumberSeries
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["GradientNormExplosion", "LossDiverging", "LossSpike", "OscillatingLoss"]

_SHARE_OF_RUN: Final = 0.25
"""Share of the steps so far that a rise must last early in a run, where saved steps are dense."""
_SIGNS: Final = "Check the sign of each term of the loss: what it maximises must have a bound."
_Percent = Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")]


class _LossRule(CurveRule):
    """Evaluates the training losses, or the numbers that `tensor_regex` selects."""

    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()

    points = staticmethod(training_points)

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection `losses`, or that of `tensor_regex` if it is given."""
        intervals = self.collections[0].parameters
        chosen = selected_collections(type(self).__name__, (), self.tensor_regex, intervals)
        return chosen or self.collections

    def _points_of(self, step: StepView) -> Points:
        return (
            named_points(step, self.tensor_regex) if self.tensor_regex else super()._points_of(step)
        )


class LossDiverging(_LossRule):
    """Detects training losses that rise and stay high, or fall without end.

    How it decides:
        The rule fires if one of these holds at `patience` saved steps in a row:
        * The latest 30 losses are all higher than the first one by `rise_percent`.
        * The latest 8 are all higher than the best level by `rise_percent`, and do not fall again.
        * The loss is below minus `fall_factor` times its size at the beginning, which is at least
          1: nothing bounds it.

        Either rise must be four times the scatter, and more than chance for batches with few rows.
        They must span 5 steps for each after the first; early in a run, a quarter of the steps so
        far is enough. Of several losses, all must diverge.

    Parameters:
        patience: Saved steps in a row.
        rise_percent: The rise, in percent of the first loss.
        fall_factor: Times the loss at the beginning that a negative loss may reach.
        tensor_regex: Regular expressions of numbers to evaluate instead of the losses. Those of
            which higher is better are negated.

    What to try:
        Lower the learning rate or warm it up, clip gradients, and resume from the last good
        checkpoint.
    """

    rise_percent: _Percent = 50.0
    # Log-likelihoods and returns grow a thousandfold in healthy runs.
    fall_factor: Annotated[float, GreaterThan(1), Unit("times")] = 1e6

    measure = "loss_rise_percent"
    fatal_measures = (measure, "loss")
    steps_apart = 5  # the first saved steps are dense
    _window = (LEVEL, WINDOW)

    def _least_steps(self, num_steps: int) -> float:
        return min(super()._least_steps(num_steps), _SHARE_OF_RUN * num_steps)

    def _detect(self, series: NumberSeries) -> Finding | None:
        found = divergence(series.first, series.whole, self.rise_percent / 100, series.rows)
        if found is None:
            return self._without_bound(series)
        rise, limit = (100 * (at - found.before) / found.scale for at in (found.now, found.limit))
        text = f"rose from {found.before:.4g} to {found.now:.4g}, by {rise:.3g} % of "
        text += f"{found.scale:.4g} at the beginning, more than {limit:.3g} %"
        return Finding(rise, limit, text)

    def _without_bound(self, series: NumberSeries) -> Finding | None:
        now, limit = float(series.latest[-1]), -self.fall_factor * max(series.start, 1.0)
        text = f"fell from {series.first[0]:.4g} to {now:.4g}: it has no lower bound"
        return Finding(now, limit, text, "loss", _SIGNS) if now < limit else None


class LossSpike(_LossRule):
    """Detects training losses that jump far above their latest level.

    How it decides:
        The rule compares the last `patience` saved losses with the median of the `num_points`
        before them. Each must exceed it by `num_deviations` robust standard deviations, by twice
        the largest excess before, and by `rise_percent` of the loss at the beginning. Batches with
        few rows have a wider limit. Of several losses, all must spike.

    Parameters:
        patience: Number of consecutive high losses.
        num_points: Saved losses before the spike that it is compared with.
        num_deviations: Robust standard deviations above their median.
        rise_percent: The rise, in percent of the first loss.
        tensor_regex: Regular expressions of numbers to evaluate instead of the losses. Those of
            which higher is better are negated.

    What to try:
        Clip gradients, lower the learning rate or warm it up longer. Look at the batches of these
        steps, and resume from the checkpoint before without them.
    """

    num_points: Annotated[int, AtLeast(5), Unit("saved steps")] = 20
    num_deviations: Annotated[float, GreaterThan(0), Unit("standard deviations")] = 8.0
    rise_percent: _Percent = 20.0

    measure = "loss"
    compares_together = True

    @property
    def _window(self) -> tuple[int, int]:
        return max(self.num_points // 4, self.num_first) + self.patience, self.num_points

    def _detect(self, series: NumberSeries) -> Finding | None:
        found = self._spike(series, len(series.latest) - self.patience, series.start)
        num = first_jump(series.first, series.rows)
        if num and LEVEL + self.patience <= series.count == len(series.latest):
            found = found or self._spike(series, num, series.first[0])
        if found is None:
            return None
        (level, limit), now = found, float(series.latest[-1])
        text = f"is {now:.4g}, above {limit:.4g} for {self.patience} saved steps; the "
        return Finding(now, limit, f"{text}median before is {level:.4g}")

    def _spike(self, series: NumberSeries, num: int, start: float) -> tuple[float, float] | None:
        """Compare the latest losses with the given number of losses before them."""
        before, now = np.split(series.latest, [num])
        rise = self.rise_percent / 100 * start
        return spike(before, now, self.num_deviations, rise, series.rows)


class OscillatingLoss(_LossRule):
    """Detects training losses that swing widely and do not fall.

    How it decides:
        The rule fires if all of these hold for the latest `num_points` saved losses:
        * Their scatter exceeds `amplitude_percent` of the loss at the beginning.
        * Neighbours differ more than among the first 10, and more than by chance.
        * They do not fall, and stay above half of the beginning.

        Ranks with several losses are ignored.

    Parameters:
        patience: Saved steps in a row.
        num_points: Saved losses whose scatter is measured.
        amplitude_percent: The scatter, in percent of the first loss.
        tensor_regex: Regular expressions of numbers to evaluate instead of the losses. Those of
            which higher is better are negated.

    What to try:
        Lower the learning rate, take larger batches or clip gradients.
    """

    num_points: Annotated[int, AtLeast(10), Unit("saved steps")] = 20
    amplitude_percent: _Percent = 30.0

    measure = "loss_scatter_percent"
    num_first = 10
    needs_single_curve = True

    @property
    def _window(self) -> tuple[int, int]:
        return self.num_first // 2 + self.num_points, self.num_points

    def _detect(self, series: NumberSeries) -> Finding | None:
        scatter = 100 * oscillation(series.first, series.latest[-self.num_points :], series.rows)
        limit = self.amplitude_percent
        text = f"scatters by {scatter:.3g} % of its beginning, more than {limit:g} %, and does not"
        return Finding(scatter, limit, f"{text} fall") if scatter > limit else None


def _gradient_norms(step: StepView) -> Points:
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
    steps_apart = 5  # a few large batches in a row are no explosion
    points = staticmethod(_gradient_norms)

    @property
    def _window(self) -> tuple[int, int]:
        return self.num_first + self.patience, LEVEL

    def _detect(self, series: NumberSeries) -> Finding | None:
        before, now = series.latest[: -self.patience], series.latest[-self.patience :]
        limit = self.growth_factor * float(max(np.median(before), np.median(series.first)))
        text = f"is the largest of the gradients, whose norm {now[-1]:.3g} is more than "
        text += f"{self.growth_factor:g} times what it was before"
        return Finding(float(now[-1]), limit, text) if 0 < limit < now.min() else None
