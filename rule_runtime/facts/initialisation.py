"""Signs of a poor initialisation in the first steps of training.

Each function returns the worst sign that it finds, None if all is well, and raises `Missing` where
nothing can be judged.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.parameters import FirstWeight, Gradients, first_weights
from rule_runtime.facts.selection import finite_means, worst
from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "Sign",
    "equal_units",
    "large_weights",
    "loss_without_decrease",
    "narrow_gradients",
    "unlike_variances",
]

_HALF: Final = 0.5
"""Share of the weights that must be bad, and of the allowed gain by which signals must grow."""
_MAX_LOSSES: Final = 32
"""Losses that are followed; the others are not."""


class Sign(NamedTuple):
    """A sign of a poor initialisation.

    Attributes:
        rows: Tensors of the step.
        at: The worst of them.
        measure: Name of what was measured.
        value: The measured value.
        threshold: What it was compared with.
        message: The finding in words.
    """

    rows: TensorRows
    at: int
    measure: str
    value: float
    threshold: float
    message: str


def unlike_variances(step: StepView, regex: tuple[str, ...], threshold: float) -> Sign | None:
    """Compare the variances of the inputs of ReLU layers on a worker.

    Args:
        step: The step.
        regex: Regular expressions of further inputs.
        threshold: Ratio of the largest variance to the smallest that is too large.
    """
    rows = step.tensors(collections=("relu_input",), regex=regex)
    with np.errstate(over="ignore"):
        variance = np.where(_num_finite(rows) > 1, rows.column("std") ** 2, np.nan)
    ratios, smallest = np.full(len(rows), np.nan), dict[str, int]()
    workers = np.array(rows.workers)
    for worker in step.workers:
        own = np.where(workers == worker, variance, np.nan) if len(rows) else variance
        if np.count_nonzero(~np.isnan(own)) > 1:
            smallest[worker] = worst(rows, own, largest=False)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(workers == worker, own / own[smallest[worker]], ratios)
    if not smallest:
        raise Missing(
            "no two inputs of activations (collection relu_input) were saved with statistics"
        )
    if not (ratios > threshold).any():
        return None
    at = worst(rows, ratios, largest=True)
    other = smallest[rows.workers[at]]
    message = (
        f"variance {variance[at]:.3g} is {ratios[at]:.3g} times the {variance[other]:.3g} "
        f"of {rows.names[other]}, more than {threshold:g} times"
    )
    return Sign(rows, at, "variance_ratio", ratios[at], threshold, message)


def narrow_gradients(step: StepView, threshold: float) -> Sign | None:
    """Compare the 5th and 95th percentile of each gradient.

    Without values, only extremes that are as close count. Gradients with one element, or that are
    not finite, and those of biases before a normalisation are ignored.

    Args:
        step: The step.
        threshold: Distance of the percentiles that is too small.
    """
    gradients = step.fact(Gradients)
    is_finite = _num_finite(gradients.rows) == gradients.rows.column("size")
    is_judged = is_finite & (gradients.rows.column("size") > 1) & ~gradients.is_cancelled
    rows = gradients.rows.select(is_judged)
    extremes = rows.column("max") - rows.column("min")
    distance = np.where(extremes < threshold, extremes, np.nan)
    for at, value in row_values(step, rows):
        if value.dtype.kind in "iuf":
            low, high = np.percentile(value, (5, 95))
            distance[at] = high - low
    if np.isnan(distance).all():
        raise Missing("no gradient was saved with its values")
    at = worst(rows, distance, largest=False)
    if not distance[at] < threshold:
        return None
    message = (
        f"95th and 5th percentile of the gradient are {distance[at]:.3g} apart, less than "
        f"{threshold:g}"
    )
    return Sign(rows, at, "percentile_range", distance[at], threshold, message)


def loss_without_decrease(
    step: StepView, memory: MutableMapping[str, Any], patience: int
) -> Sign | None:
    """Count the steps for which each loss has not fallen below its minimum.

    Args:
        step: The step.
        memory: `losses`: name, worker, minimum and count of at most 32 losses.
        patience: Number of steps that are too many.
    """
    rows = step.tensors(collections=("losses",))
    known = {(name, worker): (least, n) for name, worker, least, n in memory.get("losses", ())}
    waited = np.full(len(rows), np.nan)
    pairs = zip(
        rows.names, rows.workers, finite_means(rows).tolist(), range(len(rows)), strict=True
    )
    for name, worker, loss, at in sorted(pairs):
        if math.isfinite(loss) and ((name, worker) in known or len(known) < _MAX_LOSSES):
            least, count = known.get((name, worker), (math.inf, 0))
            known[name, worker] = (loss, 0) if loss < least else (least, count + 1)
            waited[at] = known[name, worker][1]
    memory["losses"] = [[*pair, *value] for pair, value in sorted(known.items())]
    if np.isnan(waited).all():
        raise Missing("no finite loss was saved")
    at = worst(rows, waited, largest=True)
    if waited[at] < patience:
        return None
    least = known[rows.names[at], rows.workers[at]][0]
    message = f"no loss below {least:.4g} for {waited[at]:.0f} steps"
    return Sign(rows, at, "steps_without_decrease", waited[at], patience, message)


def large_weights(step: StepView, max_gain: float) -> Sign | None:
    """Return the largest weight if half of them, or a recurrent one, are too large.

    A weight is too large if its gain is, and its layer's output grows by more than half as much, so
    that weights that the model scales down do not count.

    Args:
        step: The first step of its mode.
        max_gain: The largest gain that is no sign.
    """
    weights = first_weights(step)

    def is_large(weight: FirstWeight) -> bool:
        return weight.gain > max_gain and not weight.growth <= _HALF * max_gain

    # Signals pass a recurrent weight at each position, so one that is too large suffices.
    recurrent = [weight for weight in weights if weight.is_recurrent and is_large(weight)]
    large = _at_least_half(weights, is_large) or recurrent
    if not large:
        return None
    first = max(large, key=lambda weight: weight.gain)
    grows = "" if math.isnan(first.growth) else f", and signals grow {first.growth:.3g} times"
    others = f"{len(large)} of {len(weights)} weights"
    message = (
        f"begins with a gain of {first.gain:.3g}, more than {max_gain:g}{grows}; as do {others}"
    )
    rows = step.tensors(collections=("weights",))
    return Sign(rows, first.at, "gain", first.gain, max_gain, message)


def equal_units(step: StepView) -> Sign | None:
    """Return a weight whose units are all equal, and remain so, if half of the weights are.

    Weights of 0 may be on purpose, unless all are constant and one layer feeds another. A single
    layer learns from any start.

    Args:
        step: The first step of its mode.
    """
    weights = first_weights(step)
    units = [weight for weight in weights if weight.outputs > 1 and weight.inputs > 1]
    equal = _at_least_half(units, lambda weight: weight.is_constant and not weight.is_zero)
    own = [weight for weight in units if weight.worker == units[0].worker]
    is_layered = any(one.inputs == other.outputs for one, other in permutations(own, 2))
    if is_layered and all(weight.is_constant for weight in own):
        equal = equal or own
    if not equal or len({weight.at for weight in weights}) == 1:
        return None
    rows, at = step.tensors(collections=("weights",)), equal[0].at
    value = float(rows.column("min")[at])
    message = (
        f"begins with {value:.3g} in all elements, so that all units of the layer are equal and "
        f"remain so; as do {len(equal)} of {len(units)} weights"
    )
    return Sign(rows, at, "initial_value", value, 0.0, message)


def _at_least_half(
    weights: list[FirstWeight], is_bad: Callable[[FirstWeight], bool]
) -> list[FirstWeight]:
    """Return the bad weights of the first worker of which they are at least half."""
    for worker in sorted({weight.worker for weight in weights}):
        own = [weight for weight in weights if weight.worker == worker]
        bad = [weight for weight in own if is_bad(weight)]
        if bad and len(bad) >= _HALF * len(own):
            return bad
    return []


def _num_finite(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the number of finite elements of each row [R]."""
    num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
    return np.asarray(rows.column("size") - num_bad)
