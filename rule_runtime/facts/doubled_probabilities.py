"""Probabilities that go into a loss which applies softmax or sigmoid again, though no name tells.

A cross entropy of probabilities p as scores lies between ln(sum of exp(p)) - 1 and that: nearly
constant, between ln(e + C - 1) - 1 and ln(e + C - 1) for C classes, however sure the model is. A
loss that takes probabilities as such falls to their entropy. So it is with a sigmoid of
probabilities, of which some belong to targets of 1.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_inputs import only_outputs
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.recomputed_loss import of_sigmoids_of_probabilities
from rule_runtime.numerics.row_memory import MAX_ROWS, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["recomputed_twice", "returned_to_functions", "surely_twice"]

_OF_FUNCTIONS: Final = "Loss_output_0"
_INPUT_OF_FUNCTIONS: Final = "Loss_input_0"
_OF_MODELS: Final = (r"^[A-Z][A-Za-z0-9]*_output_[0-9]+$",)
_CLOSE: Final = 1e-3
_UNSURE: Final = 1.3
_ROUGHLY: Final = 0.01
_LARGEST: Final = 1 - 1e-4
_TIMES: Final = 2
_SURE: Final = 2.0
_MOST_LOSSES: Final = 32


class _Numbers(NamedTuple):
    """A tensor.

    Attributes:
        shape: Its shape; None if it was not saved.
        low: Smallest element.
        high: Largest element.
        mean: Mean of the elements.
        std: Their standard deviation.
    """

    shape: tuple[int, ...] | None
    low: float
    high: float
    mean: float
    std: float

    @property
    def is_binary(self) -> bool:
        """Whether all elements are 0 or 1."""
        variance = self.mean * (1 - self.mean)
        return self.low >= 0 and self.high <= 1 and abs(self.std**2 - variance) < _CLOSE


def returned_to_functions(step: StepView) -> dict[str, str]:
    """Return what the only model of each worker returns to the only loss, which is no module.

    Args:
        step: The step.

    Returns:
        Names of tensors by worker, unless what this loss got was saved itself; where `labels` were
        saved, too, only if they are numbers of the classes of which this output has scores, or as
        many as it has elements.
    """
    found = only_outputs(step)
    are_known = step.tensors(regex=(f"^{_INPUT_OF_FUNCTIONS}$",)).workers
    losses = step.tensors(collections=("losses",))
    labels = _described(step.tensors(regex=("^labels$",)))
    outputs = step.tensors(regex=_OF_MODELS)
    for worker in set(step.workers) - set(found) - set(are_known):
        of_worker = [
            name for name, of in zip(losses.names, losses.workers, strict=True) if of == worker
        ]
        own = [
            (name, shape)
            for name, of, shape in zip(outputs.names, outputs.workers, outputs.shapes, strict=True)
            if of == worker and name not in losses.names
        ]
        target = labels.get(("labels", worker))
        if of_worker == [_OF_FUNCTIONS] and len(own) == 1:
            (name, shape) = own[0]
            if target is None or target.shape == shape:
                found[worker] = name
    return found


def surely_twice(
    step: StepView,
    rows: TensorRows,
    is_judged: npt.NDArray[np.bool_],
    of_functions: Mapping[str, str],
    memory: Memory,
) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are sure probabilities whose loss is what a second activation leaves.

    Args:
        step: The step.
        rows: What goes into losses, and whatever else.
        is_judged: Which of them go into losses of which no name tells what they apply.
        of_functions: See `returned_to_functions`.
        memory: `once`: keys of at most 2,048 rows whose loss was not like that at some step.
    """
    known = _losses(step)
    targets = _described(step.tensors(regex=(r"_input_1$", "^labels$")))
    described = _described(rows)
    keys = row_keys(rows.names, rows.workers)
    once = set(memory.get("once", ()))
    found = np.zeros(len(rows), dtype=bool)
    for at in np.flatnonzero(is_judged):
        name, worker = rows.names[at], rows.workers[at]
        loss, target = name.removesuffix("_input_0") + "_output_0", name[:-1] + "1"
        if of_functions.get(worker) == name:
            loss, target = _OF_FUNCTIONS, "labels"
        value = known.get((loss, worker), np.nan)
        given = described[name, worker]
        if not given.shape or int(keys[at]) in once or np.isnan(value):
            continue
        times = _times_entropy(value, given, targets.get((target, worker)))
        found[at] = times is not None and times > _UNSURE
        if times is None and len(once) < MAX_ROWS:
            once.add(int(keys[at]))
    memory["once"] = sorted(once)
    return found


def recomputed_twice(
    step: StepView, rows: TensorRows, is_judged: npt.NDArray[np.bool_], memory: Memory
) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] have probabilities of which a loss took a sigmoid, by their values.

    Args:
        step: The step.
        rows: What goes into losses, and whatever else.
        is_judged: Which of them go into losses of which no name tells what they apply.
        memory: `again`: at how many steps with values in a row each of at most 32 was like that.
    """
    known = _losses(step)
    counts: dict[str, int] = memory.setdefault("again", {})
    found = np.zeros(len(rows), dtype=bool)
    for at in np.flatnonzero(is_judged):
        (owner, _, number), worker = rows.names[at].rpartition("_input_"), rows.workers[at]
        key = f"{worker}/{owner}"
        loss = known.get((f"{owner}_output_0", worker), np.nan)
        if number != "0" or np.isnan(loss) or (key not in counts and len(counts) >= _MOST_LOSSES):
            continue
        names = tuple(f"{owner}_input_{other}" for other in range(4))
        values = step.values(names, worker)
        given = [values[name] for name in names if name in values]
        if not {*names[:2]} <= values.keys():
            continue  # values are saved seldom
        times = of_sigmoids_of_probabilities(given[0], given[1], given[2:], loss)
        counts[key] = 0 if times is None else min(counts.get(key, 0) + 1, _TIMES)
        found[at] = times is not None and times > _SURE and counts[key] >= _TIMES
    return found


def _losses(step: StepView) -> dict[tuple[str, str], float]:
    """Return the losses of a step by name and worker."""
    losses = step.tensors(collections=("losses",))
    pairs = zip(losses.names, losses.workers, strict=True)
    return dict(zip(pairs, finite_means(losses).tolist(), strict=True))


def _times_entropy(loss: float, given: _Numbers, target: _Numbers | None) -> float | None:
    """Return how many times the largest entropy of probabilities a loss of them, twice, is.

    Returns:
        None if they are none, or neither the loss nor its share of a row or element can be that.
    """
    if not (given.low >= 0 and given.high <= 1 + _CLOSE):
        return None
    shape = given.shape or ()
    if shape[-1] > 1 and abs(given.mean * shape[-1] - 1) < _CLOSE:
        highest = math.log(math.e + shape[-1] - 1)
        ends, num_rows = (highest - 1 - _CLOSE, highest + _CLOSE), math.prod(shape[:-1])
        entropy = _entropy(given.mean**2 + given.std**2, shape[-1])
    elif target is not None and target.shape == shape and target.is_binary:
        ends, num_rows = _ends_of_binary(given, target.mean), math.prod(shape)
        spread = max(given.mean - given.mean**2 - given.std**2, _CLOSE)
        second = (1 - math.sqrt(max(1 - 4 * spread, 0.0))) / 2
        entropy = -second * math.log(second) - (1 - second) * math.log(1 - second)
    else:
        return None
    fitting = [value for value in (loss, loss / num_rows) if ends[0] <= value <= ends[1]]
    return fitting[0] / entropy if fitting else None


def _ends_of_binary(given: _Numbers, positives: float) -> tuple[float, float]:
    """Return the least and most that a cross entropy of sigmoids p of probabilities can be.

    It is the mean of ln(1 + exp(p)), next to ln 2 + p / 2 + p^2 / 8, less that of p where the
    target is 1, which the means of both bound (Frechet).
    """
    largest = math.log(2) + given.mean / 2 + (given.mean**2 + given.std**2) / 8
    least = largest - min(given.mean, positives)
    return least - _ROUGHLY, largest - max(given.mean + positives - 1, 0.0) + _ROUGHLY


def _entropy(mean_square: float, num_classes: int) -> float:
    """Return the largest entropy of probabilities with a mean square: one, and all others alike."""
    spread = max(num_classes**2 * mean_square - 1, 0.0)
    first = min((1 + math.sqrt((num_classes - 1) * spread)) / num_classes, _LARGEST)
    other = (1 - first) / (num_classes - 1)
    return -first * math.log(first) - (1 - first) * math.log(other)


def _described(rows: TensorRows) -> dict[tuple[str, str], _Numbers]:
    """Return tensors by name and worker."""
    columns = [rows.column(name).tolist() for name in ("min", "max", "mean", "std")]
    pairs = zip(rows.names, rows.workers, strict=True)
    described = map(_Numbers, rows.shapes, *columns)
    return dict(zip(pairs, described, strict=True))
