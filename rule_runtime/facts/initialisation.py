"""Signs of a poor initialisation: weights before the first step, and the first steps.

Each function returns the worst sign that it finds, None without any, and raises `Missing` if data
is insufficient.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from collections.abc import MutableMapping
from itertools import permutations
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.layer_names import LINEAR, WeightShape
from rule_runtime.facts.layers import Layers, Signals
from rule_runtime.facts.missing import required_tensors
from rule_runtime.facts.parameters import Gradients
from rule_runtime.facts.saved_tensors import finite_means, num_not_finite
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst
from rule_runtime.trial.value_pairs import row_values

__all__ = [
    "FIRST_WEIGHTS",
    "FirstWeight",
    "Sign",
    "equal_units",
    "first_weights",
    "large_weights",
    "loss_without_decrease",
    "narrow_gradients",
    "unlike_variances",
]

FIRST_WEIGHTS: Final = saved_every(10, "module_io", "weights", "gradients")
"""Collections for a rule that uses the first weights."""

_NONE: Final = "no weight of a linear, recurrent or attention layer was saved with a gradient"
_PACKED: Final = re.compile(
    r"\.(weight_[ih]h_l\d+(_reverse)?|in_proj_weight)$|_cell(_\d+)?/(recurrent_)?kernel:0$"
)
"""Weights of recurrent and attention layers."""
_FACTORS: Final = {LINEAR: 1.0, "relu": math.sqrt(2)}
"""Factor by which an activation inside a layer divides the root mean square of its output."""


Sign = tuple[tuple[TensorRows, int], tuple[str, float, float], str]
"""A sign of a poor initialisation: arguments of `finding` after the rule and the step."""


class FirstWeight(NamedTuple):
    """A weight of a linear, recurrent or attention layer before the first step of training.

    Attributes:
        at: Its row in the collection `weights` [R].
        gain: Root mean square times the root of the smaller of its numbers of inputs and outputs;
            0.5 to 2 in usual initialisations.
        growth: Root mean square of the layer's output divided by that of its input; NaN if unknown,
            as after an activation inside the layer that bounds the output.
        constant: Value of all elements; NaN if they differ.
    """

    at: int
    gain: float
    growth: float
    outputs: int
    inputs: int
    constant: float


def first_weights(step: StepView) -> list[FirstWeight]:
    """Return the weights of linear, recurrent and attention layers that have a gradient.

    Raises:
        Missing: If there are no such weights.
    """
    weights = required_tensors(step, "weights")
    has_gradient = ~np.isnan(step.fact(Gradients).of(weights))
    growths, rms = _growths(step), _rms(weights)
    low, high = weights.column("min"), weights.column("max")
    found = []
    for at, pair in enumerate(weights.pairs):
        shape = weights.shapes[at]
        if shape and has_gradient[at] and (pair in growths or _PACKED.search(pair[0])):
            outputs, inputs, kernel, _ = WeightShape.of(pair[0], shape) or _packed(shape)
            gain = float(rms[at]) * math.sqrt(min(outputs, inputs) * math.prod(kernel))
            constant = float(low[at]) if low[at] == high[at] else math.nan
            growth = growths.get(pair, math.nan)
            found.append(FirstWeight(at, gain, growth, outputs, inputs, constant))
    if not found:
        raise Missing(_NONE if step.fact(Layers).linear else step.fact(Layers).why_none_is_linear)
    return found


def large_weights(step: StepView, max_gain: float) -> Sign | None:
    """Return the largest weight if at least half of the weights are too large.

    A weight is too large if its gain exceeds `max_gain`, and its layer's output is more than
    `max_gain / 2` times its input. So weights that the model scales down do not count.
    """
    weights = first_weights(step)
    large = [w for w in weights if w.gain > max_gain and not w.growth <= max_gain / 2]
    if 2 * len(large) < len(weights):
        return None
    first = max(large, key=lambda weight: weight.gain)
    grows = "" if math.isnan(first.growth) else f", and signals grow {first.growth:.3g} times"
    message = f"begins with a gain of {first.gain:.3g}, more than {max_gain:g}{grows}; as do "
    message += f"{len(large)} of {len(weights)} weights"
    rows = step.tensors(collections=("weights",))
    return (rows, first.at), ("gain", first.gain, max_gain), message


def equal_units(step: StepView) -> Sign | None:
    """Return a constant weight if at least half of the weights are constant; then units stay equal.

    Single zero weights can be deliberate, so they count only if all weights are constant. A model
    whose layers do not feed each other learns from any start.
    """
    weights = first_weights(step)
    units = [weight for weight in weights if weight.outputs > 1 and weight.inputs > 1]
    constant = [weight for weight in units if not math.isnan(weight.constant)]
    if len(constant) < len(units):
        constant = [weight for weight in constant if weight.constant]
    is_layered = any(one.inputs == other.outputs for one, other in permutations(weights, 2))
    if not (constant and is_layered and 2 * len(constant) >= len(units)):
        return None
    first = constant[0]
    message = f"begins with {first.constant:.3g} in all elements, so that all units of the layer "
    message += f"are equal and remain so; as do {len(constant)} of {len(units)} weights"
    rows = step.tensors(collections=("weights",))
    return (rows, first.at), ("initial_value", first.constant, 0.0), message


def unlike_variances(step: StepView, regex: tuple[str, ...], threshold: float) -> Sign | None:
    """Compare the variances of the inputs of ReLU layers on a worker."""
    rows = step.tensors(collections=("relu_input",), regex=regex)
    workers, num_finite = np.array(rows.workers), rows.column("size") - num_not_finite(rows)
    with np.errstate(over="ignore"):
        variance = np.where(num_finite > 1, rows.column("std") ** 2, np.nan)
    found: list[tuple[float, int, int]] = []
    for worker in set(rows.workers):
        own = np.where(workers == worker, variance, np.nan)
        if np.count_nonzero(~np.isnan(own)) > 1:
            large, small = (worst(rows, own, largest=is_it) for is_it in (True, False))
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = float(np.nan_to_num(own[large] / own[small], posinf=np.inf))
            found.append((ratio, large, small))
    if not found:
        raise Missing("fewer than 2 inputs of ReLU layers were saved (collection relu_input)")
    ratio, at, other = max(found)
    if ratio <= threshold:
        return None
    message = f"variance {variance[at]:.3g} is {ratio:.3g} times the {variance[other]:.3g} of "
    message += f"{rows.names[other]}, more than {threshold:g} times"
    return (rows, at), ("variance_ratio", ratio, threshold), message


def narrow_gradients(step: StepView, threshold: float) -> Sign | None:
    """Compare the 5th and 95th percentile of each gradient.

    Without values, extremes must be that close. Gradients with one element, non-finite gradients,
    and those of biases before a normalisation are ignored.
    """
    gradients = step.fact(Gradients)
    has_several = (gradients.rows.column("size") > 1) & (num_not_finite(gradients.rows) == 0)
    rows = gradients.rows.select(has_several & ~gradients.is_cancelled)
    extremes = rows.column("max") - rows.column("min")
    distance = np.where(extremes < threshold, extremes, np.nan)
    for at, value in row_values(step, rows):
        if value.dtype.kind in "iuf":
            low, high = np.percentile(value, (5, 95))
            distance[at] = high - low
    if np.isnan(distance).all():
        raise Missing("no values of gradients were saved", step.how_to_save(rows.names))
    at = worst(rows, distance, largest=False)
    if not distance[at] < threshold:
        return None
    message = f"95th and 5th percentile of the gradient are {distance[at]:.3g} apart, less than "
    message += f"{threshold:g}"
    return (rows, at), ("percentile_range", distance[at], threshold), message


def loss_without_decrease(
    step: StepView, memory: MutableMapping[str, Any], patience: int
) -> Sign | None:
    """Count the steps for which each loss has not fallen below its minimum.

    Memory: `losses`, minimum and count of at most 32 losses, by worker and name.
    """
    rows = step.tensors(collections=("losses",))
    known, waited = memory.setdefault("losses", {}), np.full(len(rows), np.nan)
    keys, losses = [f"{worker}/{name}" for name, worker in rows.pairs], finite_means(rows).tolist()
    for key, loss, at in sorted(zip(keys, losses, range(len(rows)), strict=True)):
        if math.isfinite(loss) and (key in known or len(known) < MAX_SERIES):
            least, count = known.get(key, (math.inf, 0))
            known[key] = [loss, 0] if loss < least else [least, count + 1]
            waited[at] = known[key][1]
    if np.isnan(waited).all():
        raise Missing("no finite loss was saved")
    at = worst(rows, waited, largest=True)
    if waited[at] < patience:
        return None
    message = f"no loss below {known[keys[at]][0]:.4g} for {waited[at]:.0f} steps"
    return (rows, at), ("steps_without_decrease", waited[at], patience), message


def _packed(shape: tuple[int, ...]) -> WeightShape:
    """Return the shape of a weight of a recurrent or attention layer."""
    return WeightShape(shape[0], shape[1], shape[2:], (-1,))


def _growths(step: StepView) -> dict[tuple[str, str], float]:
    """Return the ratio of a linear layer's output, before its activation, to its input, by weight.

    It is NaN if the activation inside the layer hides the output.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rms = _rms(step.fact(Signals).rows)
        return {
            (layer.weight, layer.worker): float(rms[layer.out] / rms[layer.into])
            * _FACTORS.get(layer.activation, math.nan)
            for layer in step.fact(Layers).linear
        }


def _rms(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the root mean square of each row."""
    with np.errstate(over="ignore"):
        return np.sqrt(rows.column("mean") ** 2 + rows.column("std") ** 2)
