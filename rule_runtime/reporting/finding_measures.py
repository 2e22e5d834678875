"""Finds plottable numbers for the measures of rules in the stored data of a run.

Shape legend: C = statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.numerics.tensor_change import movement, ratio_bounds
from rule_runtime.reporting.run_history import WatchedRow, number_of

__all__ = ["LOSS", "MEASURES", "Agreement", "Measure"]

_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}
_EPSILON: Final = 1e-9

_Row = npt.NDArray[np.float64]
_Numbers = Callable[[Sequence[WatchedRow]], Sequence[float | None]]


class Agreement(Enum):
    """How the plotted number must agree with the measured one at the finding."""

    SAME = "same"
    """They are equal; the threshold is plotted."""
    SIDE = "side"
    """They are on the same side of the threshold, which is plotted."""
    ZERO = "zero"
    """The plotted number is zero; there is no threshold."""
    NONE = "none"
    """No agreement: it is another number, and the threshold does not apply to it."""


@dataclass(frozen=True)
class Measure:
    """The plotted number for a measure.

    Attributes:
        what: Its description.
        numbers: Returns it for the rows of successive steps, None for steps without it; None if the
            tensor's statistics never contain it.
        unit: Its unit.
        agreement: How it must agree with the rule's measure.
        note: Explanation for the reader.
        prefix: Prefix that gives the name of the plotted tensor from the finding's tensor.
        is_beside: Whether the tensor is also plotted for other modes.
    """

    what: str
    numbers: _Numbers | None
    unit: str = ""
    agreement: Agreement = Agreement.SAME
    note: str = ""
    prefix: str = ""
    is_beside: bool = False


def _of_rows(of_row: Callable[[_Row], float]) -> _Numbers:
    return lambda rows: [of_row(each.row) for each in rows]


def _statistic(name: str) -> _Numbers:
    return _of_rows(lambda row: float(row[_AT[name]]))


def _value(row: _Row) -> float:
    number = number_of(row)
    return math.nan if number is None else number


def _norm(row: _Row) -> float:
    is_bad = row[_AT["nan"]] > 0 or row[_AT["inf"]] > 0
    return math.nan if is_bad else float(row[_AT["l2"]])


def _least_updates(rows: Sequence[WatchedRow]) -> list[float | None]:
    return _drift(rows, 0)


def _moves(rows: Sequence[WatchedRow]) -> list[float | None]:
    return _drift(rows, 1)


def _drift(rows: Sequence[WatchedRow], which: int) -> list[float | None]:
    found: list[float | None] = [None] * bool(rows)
    for before, now in pairwise(rows):
        num_steps = now.mode_step - before.mode_step
        moved = float(movement(now.row[None], before.row[None])[which][0])
        found.append(moved / num_steps if num_steps > 0 and math.isfinite(moved) else None)
    return found


def _least_ratios(rows: Sequence[WatchedRow]) -> list[float | None]:
    """Return lower bounds of updates between saved steps, relative to mean element sizes."""
    if len(rows) < 2:  # noqa: PLR2004 - a change is between two
        return [None] * len(rows)
    table = np.stack([each.row for each in rows])
    lower, _ = ratio_bounds(table[1:], table[:-1], _EPSILON)
    return [None, *lower.tolist()]


LOSS: Final = Measure("value", _of_rows(_value), agreement=Agreement.NONE)
"""The value of a one-element tensor, such as a loss."""


def _of_loss(judged: str, *, is_beside: bool = False) -> Measure:
    note = f"The rule evaluates {judged}; its threshold does not apply to this curve."
    return replace(LOSS, note=note, is_beside=is_beside)


_NO_GRADIENT: Final = Measure(
    "L2 norm",
    _of_rows(_norm),
    agreement=Agreement.ZERO,
    note="The rule counts the saved steps at which it is zero.",
    prefix="gradient/",
)
_UNCHANGED: Final = Measure(
    "least change since the step saved before, of its size",
    _least_ratios,
    agreement=Agreement.ZERO,
    note="Computed from statistics. The rule counts steps without any change.",
)

MEASURES: Final[dict[str, Measure]] = {
    **{
        name: Measure(what, _statistic(name), unit)
        for name, what, unit in (
            ("nan", "number of NaN", "elements"),
            ("inf", "number of infinite elements", "elements"),
            ("min", "smallest element", ""),
            ("max", "largest element", ""),
            ("mean", "mean", ""),
            ("std", "standard deviation", ""),
            ("abs_mean", "mean absolute value", ""),
            ("l1", "L1 norm", ""),
            ("l2", "L2 norm", ""),
        )
    },
    "nan_in_inputs": Measure("number of NaN", _statistic("nan"), "elements"),
    "inf_in_inputs": Measure("number of infinite elements", _statistic("inf"), "elements"),
    "zero_gradient": Measure("mean absolute value", _statistic("abs_mean")),
    "minimum": Measure("smallest element", _statistic("min")),
    "variance": Measure("variance", _of_rows(lambda row: float(row[_AT["std"]]) ** 2)),
    "rms": Measure(
        "root mean square",
        _of_rows(lambda row: float(row[_AT["l2"]]) / math.sqrt(max(float(row[_AT["size"]]), 1.0))),
    ),
    **dict.fromkeys(
        ("loss", "initial_loss", "impossible_loss", "learning_rate"), Measure("value", LOSS.numbers)
    ),
    **{
        name: Measure(f"optimizer steps in a row {which}", _of_rows(_value))
        for name, which in (
            ("skipped", "that were skipped"),
            ("without_gradient", "without a gradient"),
            ("gradients_cleared", "without a gradient"),
            ("of_other_parameters", "of other parameters"),
        )
    },
    "zero_percent": Measure("share of elements that are zero", None, "%"),
    "dead_units_percent": Measure(
        "share of outputs that are zero",
        None,
        "%",
        Agreement.NONE,
        "The rule counts units that are hardly ever active; its threshold is one of units.",
    ),
    "saved_steps_without_gradient": _NO_GRADIENT,
    "saved_steps_without_any_gradient": _NO_GRADIENT,
    "norm_of_all_gradients": Measure("L2 norm of all gradients together", None),
    "least_update_ratio": Measure(
        "least change in a step, of its norm",
        _least_updates,
        agreement=Agreement.SIDE,
        note="The rule compares the median of all weights. This weight moved fastest.",
    ),
    "median_move_per_step": Measure(
        "movement in a step, of its size",
        _moves,
        agreement=Agreement.SIDE,
        note="The rule compares the median of all weights. This weight moved least.",
    ),
    "update_ratio": Measure(
        "least change since the step saved before, of its size",
        _least_ratios,
        agreement=Agreement.SIDE,
        note="Computed from statistics: the true change may be larger.",
    ),
    "unchanged_steps": _UNCHANGED,
    "unchanged_saved_steps": _UNCHANGED,
    "all_unchanged_saved_steps": _UNCHANGED,
    "loss_rise_percent": _of_loss("by how many percent the loss rose"),
    "loss_fall_percent": _of_loss("by how many percent the loss fell"),
    "loss_decrease_percent": _of_loss("by how many percent the loss fell"),
    "loss_fall": _of_loss("by how much the loss fell"),
    "loss_scatter_percent": _of_loss("by how many percent the loss scatters"),
    "steps_without_decrease": _of_loss("for how many steps the loss has not fallen"),
    "gap_percent": _of_loss("the gap of means between validation and training", is_beside=True),
    "best_validation_percent": _of_loss("the best mean of a validation pass", is_beside=True),
    "share_beyond_chance": _of_loss("which share of answers is right", is_beside=True),
    "validation_loss": _of_loss("the mean of an evaluation", is_beside=True),
    "validation_to_training_ratio": _of_loss(
        "the ratio of the losses of validation and training", is_beside=True
    ),
    "evaluations_without_improvement": _of_loss(
        "for how many evaluations their mean has not improved", is_beside=True
    ),
}
"""The plotted number by name of the rule's measure; other measures are not plotted."""
