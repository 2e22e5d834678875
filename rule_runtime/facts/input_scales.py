"""Scales of a model's inputs, and of the targets of losses of numbers.

Shape legend: R = rows of inputs, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.losses import Losses
from rule_runtime.facts.model_inputs import is_of_keras
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "TargetScale",
    "are_bits",
    "has_fallen",
    "of_all_calls",
    "root_mean_square",
    "unreachable_targets",
]

_MUCH_LARGER: Final = 10.0
"""Times the outputs, or the largest scale of inputs, from which targets are out of reach."""

_BEGINNING: Final = 50
"""Steps in which outputs may come near the targets."""

_ROUNDING: Final = 1e-6
"""Relative error of statistics in single precision."""

_LARGEST: Final = 1e300
"""Losses from here on count as infinite, so that a memory stays JSON."""


class TargetScale(NamedTuple):
    """Targets of a loss of numbers that its outputs do not reach.

    Attributes:
        at: Row of the loss.
        targets: Root mean square of the targets.
        outputs: That of the outputs.
        limit: Largest one of targets.
    """

    at: int
    targets: float
    outputs: float
    limit: float


def unreachable_targets(
    step: StepView, losses: TensorRows, streaks: dict[str, int], largest: float, patience: int
) -> TargetScale | None:
    """Return targets of a loss of numbers that have been too large for long; None without any.

    Args:
        step: A training step.
        losses: Its losses.
        streaks: At how many saved steps in a row those of each of at most 32 losses were; updated.
        largest: Largest root mean square of inputs.
        patience: Saved steps in a row.
    """
    found = []
    for at, pair in enumerate(zip(losses.names, losses.workers, strict=True)):
        loss = step.fact(Losses).find(*pair)
        outputs, targets, is_of_numbers = loss.outputs, loss.targets, loss.kind.is_of_numbers
        if outputs is None or targets is None or not is_of_numbers or step.mode_step < _BEGINNING:
            continue
        key = "/".join(reversed(pair))
        if key not in streaks and len(streaks) >= MAX_SERIES:
            continue
        sizes = math.sqrt(targets.mean_square), math.sqrt(outputs.mean_square)
        limit = _MUCH_LARGER * max(largest, sizes[1])
        streaks[key] = min(streaks.get(key, 0) + 1, patience) if sizes[0] > limit else 0
        if streaks[key] >= patience:
            found.append((key, TargetScale(at, *sizes, limit)))
    return min(found)[1] if found else None


def root_mean_square(mean: npt.ArrayLike, std: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return root mean squares of numbers with these means and standard deviations.

    Args:
        mean: The means.
        std: The standard deviations.
    """
    with np.errstate(over="ignore"):
        rms: npt.NDArray[np.float64] = np.hypot(mean, std)
    return rms


def of_all_calls(
    step: StepView, rows: TensorRows, places: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return mean and standard deviation of first inputs, in all calls of their models [R].

    Args:
        step: The step.
        rows: Inputs named as `FIRST_INPUTS` [R].
        places: Which of them; others are NaN.
    """
    found = np.full((2, len(rows)), np.nan)
    for at in places:
        found[:, at] = _of_calls(step, rows, int(at))
    return found[0], found[1]


def has_fallen(step: StepView, memory: Memory) -> bool:
    """Return whether the sum of the losses of a step is below that of the first one.

    Args:
        step: The step.
        memory: `loss`: the first one.
    """
    means = finite_means(step.tensors(collections=("losses",)))
    loss = float(means.sum()) if len(means) else math.nan
    return abs(loss) < _LARGEST and loss < memory.setdefault("loss", loss)


def _of_calls(step: StepView, rows: TensorRows, at: int) -> tuple[float, float]:
    """Return mean and standard deviation of a first input, in all calls of its model together.

    Inputs of later calls have higher numbers. If a model returns several tensors, or its outputs
    were not saved, further inputs of the same shape count as the first one of a later call.
    """
    if is_of_keras(rows.names[at]):  # which has them once in a step, and all of them
        return float(rows.column("mean")[at]), float(rows.column("std")[at])
    model, worker = rows.names[at].removesuffix("_input_0"), rows.workers[at]
    inputs, outputs = (
        step.tensors(regex=(f"^{re.escape(model)}_{kind}_[0-9]+$",)) for kind in ("input", "output")
    )
    num_calls = outputs.workers.count(worker)
    num_inputs, rest = divmod(inputs.workers.count(worker), num_calls or 1)
    num_inputs = num_inputs if num_calls and num_inputs and not rest else 1
    shape = (rows.shapes[at] or ())[1:]
    named = zip(inputs.names, inputs.workers, inputs.shapes, strict=True)
    first = [
        place
        for place, (name, of, own) in enumerate(named)
        if of == worker
        and int(name.rpartition("_")[2]) % num_inputs == 0
        and (own or ())[1:] == shape
    ]
    size, mean, std = (inputs.column(name)[first] for name in ("size", "mean", "std"))
    share = np.where(np.isnan(std), 0.0, size / size.sum())
    middle = float(np.nansum(share * mean))
    spread = np.sqrt(share) * root_mean_square(mean - middle, std)
    return middle, math.hypot(*np.nan_to_num(spread).tolist())


def are_bits(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which rows [R] have no elements but 0 and 1, and not only 0.

    Args:
        rows: The rows [R].
    """
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    may_be: npt.NDArray[np.bool_] = (low >= 0) & (high == 1)
    mean, std = (np.where(may_be, column, 0.0) for column in (mean, std))
    # Of numbers between 0 and 1 only these are equal to their squares, and so in the mean.
    return may_be & np.isclose(mean, mean**2 + std**2, rtol=_ROUNDING, atol=0.0)
