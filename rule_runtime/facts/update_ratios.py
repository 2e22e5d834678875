"""How large the updates of weights since an earlier step were, relative to the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import counted
from rule_runtime.facts.comparing import frozen_rows, matched, statistics_of
from rule_runtime.facts.missing import are_not_finite
from rule_runtime.numerics.closeness import Tolerance, are_identical
from rule_runtime.numerics.update_ratio import ratio_bounds, update_ratio
from rule_runtime.trial.value_pairs import value_pairs

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["UpdateRatios", "update_ratios", "why_no_ratio"]

_EXACT: Final = Tolerance(rtol=0.0, atol=0.0)


class UpdateRatios(NamedTuple):
    """The update ratios of the weights of a step.

    Attributes:
        ratio: Mean change of an element in parts of its mean size [R]; NaN if it is not known.
        is_within: Whether statistics prove that the ratio is within the limits [R].
    """

    ratio: npt.NDArray[np.float64]
    is_within: npt.NDArray[np.bool_]


def update_ratios(
    step: StepView, rows: TensorRows, reference: StepView, limits: tuple[float, float, float]
) -> UpdateRatios:
    """Return the update ratios; values are read only where statistics do not prove them normal.

    Weights that did not change at all and may be frozen on purpose have no ratio.

    Args:
        step: A step.
        rows: Its weights [R].
        reference: The earlier step.
        limits: The smallest and the largest ratio that is normal, and what is added to the size of
            a weight.
    """
    smallest, largest, epsilon = limits
    others = reference.tensors(collections=("weights",))
    at, there = matched(rows, others)
    shapes, other_shapes = rows.shapes, others.shapes
    is_same = [shapes[i] == other_shapes[j] for i, j in zip(at, there, strict=True)]
    at, there = at[np.array(is_same, np.bool_)], there[np.array(is_same, np.bool_)]
    now, before = statistics_of(rows.select(at)), statistics_of(others.select(there))
    lower, upper = ratio_bounds(now, before, epsilon)
    ratio = np.full(len(rows), np.nan)
    is_within = np.zeros(len(rows), dtype=np.bool_)
    is_within[at] = (lower >= smallest) & (lower > 0) & (upper <= largest)
    ratio[at[are_identical(now, before, _EXACT)]] = 0.0
    unproven = {(rows.names[i], rows.workers[i]): int(i) for i in at if not is_within[i]}
    for worker in step.workers:
        names = {name for name, of in unproven if of == worker}
        for name, value, earlier in value_pairs(step, reference, names, worker):
            is_number = {value.dtype.kind, earlier.dtype.kind} <= set("biuf")
            if is_number and value.shape == earlier.shape:
                ratio[unproven[name, worker]] = update_ratio(value, earlier, epsilon)
    ratio[(ratio == 0) & _may_be_frozen(step, rows, is_within | (ratio > 0))] = np.nan
    return UpdateRatios(ratio, is_within)


def _may_be_frozen(
    step: StepView, rows: TensorRows, is_changed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which rows may be frozen on purpose, if they did not change [R].

    That is where the gradients of other weights were saved, or where no gradient was saved and
    other weights of the worker changed.
    """
    with_gradients = set(step.tensors(collections=("gradients",)).workers)
    learning = {rows.workers[at] for at in np.flatnonzero(is_changed)} - with_gradients
    return frozen_rows(step, rows) | np.array([of in learning for of in rows.workers], np.bool_)


def why_no_ratio(rows: TensorRows, reference: StepView) -> str:
    """Return why no weight can be compared with those of an earlier step.

    Args:
        rows: The weights.
        reference: The earlier step.
    """
    others = reference.tensors(collections=("weights",))
    at, there = matched(rows, others)
    if not len(at):
        return f"no weight was saved both now and at step {reference.step}"
    rows, others = rows.select(at), others.select(there)
    for each, when in ((rows, "now"), (others, f"at step {reference.step}")):
        if are_not_finite(each):
            return f"no weight is finite {when}"
    if not (rows.have_values & others.have_values).any():
        message = f"too little is known of {counted(len(rows), 'saved weight')}"
        return f"{message}: save their values (save_raw_tensor) at each step that is compared"
    why = "all are frozen, of another shape, or too large"
    return f"no weight can be compared with step {reference.step}: {why}"
