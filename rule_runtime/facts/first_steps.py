"""Signs of a poor initialisation in the first steps: activations, gradients and losses.

Each function returns the worst sign that it finds, None if all is well, and raises `Missing` if
data is insufficient.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.first_weights import Sign
from rule_runtime.facts.parameters import Gradients
from rule_runtime.facts.selection import finite_means, num_not_finite, worst
from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["loss_without_decrease", "narrow_gradients", "unlike_variances"]

_MAX_LOSSES: Final = 32
"""Losses that are followed; the others are not."""


def unlike_variances(step: StepView, regex: tuple[str, ...], threshold: float) -> Sign | None:
    """Compare the variances of the inputs of ReLU layers on a worker.

    Args:
        step: The step.
        regex: Regular expressions of further inputs.
        threshold: Ratio of the largest variance to the smallest that is too large.
    """
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
                found.append(
                    (float(np.nan_to_num(own[large] / own[small], posinf=np.inf)), large, small)
                )
    if not found:
        raise Missing(
            "no two inputs of activations (collection relu_input) were saved with statistics"
        )
    ratio, at, other = max(found)
    if ratio <= threshold:
        return None
    message = (
        f"variance {variance[at]:.3g} is {ratio:.3g} times the {variance[other]:.3g} "
        f"of {rows.names[other]}, more than {threshold:g} times"
    )
    return Sign((rows, at), ("variance_ratio", ratio, threshold), message)


def narrow_gradients(step: StepView, threshold: float) -> Sign | None:
    """Compare the 5th and 95th percentile of each gradient.

    Without values, only extremes that are as close count. Gradients with one element, or that are
    not finite, and those of biases before a normalisation are ignored.

    Args:
        step: The step.
        threshold: Distance of the percentiles that is too small.
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
        raise Missing("no gradient was saved with its values")
    at = worst(rows, distance, largest=False)
    if not distance[at] < threshold:
        return None
    message = (
        f"95th and 5th percentile of the gradient are {distance[at]:.3g} apart, less than "
        f"{threshold:g}"
    )
    return Sign((rows, at), ("percentile_range", distance[at], threshold), message)


def loss_without_decrease(
    step: StepView, memory: MutableMapping[str, Any], patience: int
) -> Sign | None:
    """Count the steps for which each loss has not fallen below its minimum.

    Args:
        step: The step.
        memory: `losses`: minimum and count of at most 32 losses, by worker and name.
        patience: Number of steps that are too many.
    """
    rows = step.tensors(collections=("losses",))
    known, waited = memory.setdefault("losses", {}), np.full(len(rows), np.nan)
    keys = [f"{worker}/{name}" for name, worker in zip(rows.names, rows.workers, strict=True)]
    for key, loss, at in sorted(
        zip(keys, finite_means(rows).tolist(), range(len(rows)), strict=True)
    ):
        if math.isfinite(loss) and (key in known or len(known) < _MAX_LOSSES):
            least, count = known.get(key, (math.inf, 0))
            known[key] = [loss, 0] if loss < least else [least, count + 1]
            waited[at] = known[key][1]
    if np.isnan(waited).all():
        raise Missing("no finite loss was saved")
    at = worst(rows, waited, largest=True)
    if waited[at] < patience:
        return None
    message = f"no loss below {known[keys[at]][0]:.4g} for {waited[at]:.0f} steps"
    return Sign((rows, at), ("steps_without_decrease", waited[at], patience), message)
