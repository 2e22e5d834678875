"""Recognises by which formula a loss was computed, from its outputs, targets and value.

Shape legend: B = rows, C = columns or classes, ... = further dimensions, N = all elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.loss_pair import LossPair, log_softmax, loss_pair

__all__ = ["DOUBLE_ACTIVATIONS", "WRONG_LOSSES", "Formula", "Match", "recognise"]

_Numbers = npt.NDArray[np.float64]
_Values = Mapping[str, float]
_State = dict[str, dict[str, list[Any]]]

_TOLERANCE: Final = 1e-4
"""Relative error of a recomputed loss: sums in float32 or of half-precision outputs."""
_ROUNDING: Final = 1e-6
"""Absolute error of a recomputed loss: constants of about 1e-7 inside logarithms."""
_MIN_STEPS: Final = 2
"""Saved steps at which a formula must match; one match may be chance."""
_MAX_PAIRS: Final = 1 << 20
"""Pairs of an output and a target; more take too long."""
_ROUNDED: Final = 1e-3
"""Relative distance from whole thousandths of a number that is not rounded."""
_SCATTER: Final = 0.05
"""Standard deviation of the sums of target rows that are no probabilities."""
_MOSTLY: Final = 0.9
"""Share of target elements that are not 0, where they are amounts."""
_WIDE: Final = 0.8
"""Range of outputs between 0 and 1 that logits do not have by chance."""
_FAR: Final = 0.5
"""Distance of the sum of a batch's targets from 1, as of a distribution over the batch."""
_MIN_CLASSES: Final = 3
"""Classes; the number of a class is a fair target where there are two."""
_MATRIX: Final = 2
_TINY: Final = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Formula:
    """A way to compute a loss from outputs and targets.

    Attributes:
        name: Its name.
        applies: Whether it can be computed, and means something, for outputs and targets.
        values: What it gives, a number; or several numbers with what distinguishes them.
        message: What is wrong with a loss of it, with `{}` for what distinguishes it.
        remedy: What to do then.
    """

    name: str
    applies: Callable[[LossPair], bool]
    values: Callable[[LossPair], float | _Values]
    message: str = ""
    remedy: str = ""


class Match(NamedTuple):
    """A wrong formula by which a loss is computed.

    Attributes:
        name: Name of the formula.
        message: What is wrong.
        remedy: What to do.
        expected: What the nearest right formula gives.
    """

    name: str
    message: str
    remedy: str
    expected: float


def recognise(
    formulas: Sequence[Formula],
    state: _State,
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    loss: float,
) -> Match | None:
    """Return the wrong formula by which a loss is computed; None if there is none so far.

    It must match at the first step and at another one, and no right formula may match at all of the
    steps at which it does.

    Args:
        formulas: Wrong formulas.
        state: What is known about this loss, changed in place: under `candidates` the number of
            steps at which each wrong formula matched, and the right ones that always did, too.
        values: Outputs [B, ...] and targets [B, ...] or one target for all.
        loss: The loss.
    """
    pair = loss_pair(*values)
    if pair is None or not math.isfinite(loss):
        return None
    with np.errstate(all="ignore"):
        right = _right_losses(pair)
        fitting = {name for name, value in right.items() if _is_near(value, loss, pair)}
        matches = {
            f"{formula.name} {text}": (formula, text)
            for formula, text, value in _computed(formulas, pair)
            if _is_near(value, loss, pair)
        }
    is_first = "candidates" not in state
    candidates = state.setdefault("candidates", {})
    for key, (formula, text) in matches.items():
        if is_first:
            candidates[key] = [0, sorted(fitting)]
        elif key not in candidates:
            continue
        count = candidates[key][0] + 1
        candidates[key] = [count, sorted({*candidates[key][1]} & fitting)]
        if count >= _MIN_STEPS and not candidates[key][1]:
            known = [value for value in right.values() if math.isfinite(value)]
            expected = min(known, key=lambda value: abs(value - loss), default=0.0)
            return Match(formula.name, formula.message.format(text), formula.remedy, expected)
    return None


def _computed(formulas: Sequence[Formula], pair: LossPair) -> Iterator[tuple[Formula, str, float]]:
    """Yield the formulas that apply, what distinguishes their values, and the values."""
    for formula in formulas:
        if not formula.applies(pair):
            continue
        values = formula.values(pair)
        by_text = values if isinstance(values, Mapping) else {"": float(values)}
        for text, value in by_text.items():
            yield formula, text, value


def _is_near(value: float, loss: float, pair: LossPair) -> bool:
    """Return whether a loss is a mean, or its sum over columns or all elements."""
    factors = {1, pair.t.size // len(pair.o) or 1, pair.t.size}
    return any(
        abs(factor * value - loss) <= _TOLERANCE * abs(loss) + _ROUNDING for factor in factors
    )


# Parts of formulas --------------------------------------------------------------------------------


def _entropy_of_logits(o: _Numbers, t: _Numbers) -> float:
    return float((np.logaddexp(0, o) - t * o).mean())


def _entropy_of_probabilities(p: _Numbers, t: _Numbers) -> float:
    log = np.log(np.maximum(p, _TINY))
    log_no = np.log(np.maximum(1 - p, np.finfo(np.float32).eps / 2))
    return -float((t * log + (1 - t) * log_no).mean())


def _right_losses(pair: LossPair) -> dict[str, float]:
    """Return what usual losses give, those that fit the outputs and targets."""
    found: dict[str, float] = {}
    if pair.is_elementwise or pair.t.size == 1:
        errors = pair.errors
        found["mean square"] = float(np.square(errors).mean())
        found["mean size"] = float(np.abs(errors).mean())
        found["root of the mean square"] = math.sqrt(found["mean square"])
        sizes = np.abs(errors)
        found["Huber"] = float(np.where(sizes < 1, errors**2 / 2, sizes - 0.5).mean())
    if pair.is_elementwise:  # a critic maximises one mean and minimises the other
        found["difference of means"] = float(pair.errors.mean())
        found["minus difference of means"] = -found["difference of means"]
    if pair.are_yes_or_no:
        if pair.are_probabilities:
            found["cross entropy of probabilities"] = _entropy_of_probabilities(*pair.rows)
        if not pair.are_probabilities or np.ptp(pair.o) < _WIDE:
            found["cross entropy of logits"] = _entropy_of_logits(*pair.rows)
    if pair.class_axis is not None:
        own = pair.own(pair.o)
        if not pair.are_classes_likely:
            found["cross entropy of scores"] = pair.entropy_of_scores
        if pair.are_probabilities:
            found["log loss"] = -float(np.log(np.maximum(own, _TINY)).mean())
        found["negative log likelihood"] = -float(own.mean()) if pair.o.max() <= 0 else math.nan
    return found


def _each_pair(pair: LossPair) -> _Values:
    """Return means over all pairs of an output and a target."""
    if pair.o.size * pair.t.size > _MAX_PAIRS:
        return {}
    errors = pair.o.reshape(-1, 1) - pair.t.reshape(1, -1)
    return {"square": float(np.square(errors).mean()), "size": float(np.abs(errors).mean())}


def _overlaps(p: _Numbers, t: _Numbers) -> Iterator[tuple[str, float]]:
    """Yield Dice and Jaccard of the batch and of rows, with and without smoothing by 1."""
    both, total = (p * t).sum(axis=1), (p + t).sum(axis=1)
    for of, inside, around in (
        ("", both.sum(keepdims=True), total.sum(keepdims=True)),
        ("mean ", both, total),
    ):
        for above, below in ((0.0, 0.0), (1.0, 1.0), (0.0, 1.0)):
            smooth = f" + {above:g} / {below:g}"
            yield f"{of}Dice{smooth}", float(((2 * inside + above) / (around + below)).mean())
            jaccard = (inside + above) / (around - inside + below)
            yield f"{of}Jaccard{smooth}", float(jaccard.mean())


def _competing(pair: LossPair) -> _Values:
    """Return cross entropies of classes, weighted by targets, and of the largest target alone."""
    losses = -log_softmax(pair.o, 1)
    largest = np.expand_dims(pair.t.argmax(axis=1), 1)
    return {
        "all": float((pair.t * losses).sum(axis=1).mean()),
        "the largest": float(np.take_along_axis(losses, largest, 1).mean()),
    }


def _means(pair: LossPair) -> _Values:
    """Return differences of the means of outputs and targets."""
    mean = float(pair.errors.mean())
    return {"squared": mean * mean, "absolute": abs(mean)}


def _are_means_wrong(pair: LossPair) -> bool:
    """Tell whether means of outputs are to fit targets one by one.

    A single target with up to three decimals is a wish for the mean, such as a sparsity of 0.05.
    """
    if pair.t.size > 1:
        return pair.is_elementwise
    thousandths = 1000 * float(pair.t.reshape(()))
    return abs(thousandths - round(thousandths)) > _ROUNDED * max(1.0, abs(thousandths) / 1000)


def _distances_from_number(pair: LossPair) -> _Values:
    """Return distances of each score from the number of the class."""
    errors = pair.o - pair.own_index
    return {"squared": float(np.square(errors).mean()), "absolute": float(np.abs(errors).mean())}


def _other_softmax(pair: LossPair) -> _Values:
    """Return cross entropies with the softmax along a dimension that is not that of classes."""
    axes = [axis for axis in range(pair.o.ndim) if axis != pair.class_axis]
    return {
        f"{axis}, not {pair.class_axis}": -float(pair.own(log_softmax(pair.o, axis)).mean())
        for axis in axes
    }


def _are_no_distributions(pair: LossPair) -> bool:
    """Tell whether rows of targets have no sum of 1: several classes hold, or they are amounts.

    A row that is left out has zeros only, and a weighted row has zeros beside its class.
    """
    o, t = pair.o, pair.t
    if o.shape != t.shape or o.ndim < _MATRIX or o.shape[1] == 1:
        return False
    rows = np.moveaxis(t, 1, -1).reshape(-1, t.shape[1])
    rows = rows[(rows != 0).any(axis=1)]
    sums = rows.sum(axis=1)
    do_several_hold = t.min() >= 0 and sums.mean() > 1 + _SCATTER
    return bool(do_several_hold or (sums.std() > _SCATTER and np.mean(rows != 0) > _MOSTLY))


# Tables -------------------------------------------------------------------------------------------

_SHAPES: Final = "Give outputs and targets the same shape: outputs.squeeze(-1)."
_MEAN_OF_ERRORS: Final = "Average the errors, not the outputs: ((outputs - targets) ** 2).mean()."
_DEFINITION: Final = "Use the loss of the framework, such as nn.BCEWithLogitsLoss or nn.MSELoss."
_SIGN: Final = "Change the sign of the loss."
_MULTI_LABEL: Final = (
    "Use nn.BCEWithLogitsLoss if several classes can hold at once, nn.MSELoss for amounts."
)
_ONE_SCORE: Final = "Use nn.BCEWithLogitsLoss, or return one score for each class."
_CLASS_LOSS: Final = "Use a loss of classes, such as nn.CrossEntropyLoss."

WRONG_LOSSES: Final = (
    Formula(
        "elements",
        lambda p: p.is_elementwise and p.is_one_column,
        _each_pair,
        "is the mean {} of the differences of every output from every target",
        _SHAPES,
    ),
    Formula(
        "means",
        _are_means_wrong,
        _means,
        "is the {} difference of the means of outputs and targets, in which errors cancel out",
        _MEAN_OF_ERRORS,
    ),
    Formula(
        "sign",
        lambda p: p.is_elementwise,
        lambda p: {
            "square": -float(np.square(p.errors).mean()),
            "size": -float(np.abs(p.errors).mean()),
        },
        "is minus the mean {} of the errors, so training makes them larger",
        _SIGN,
    ),
    Formula(
        "targets",
        lambda p: p.are_numbers,
        lambda p: _entropy_of_logits(*p.rows),
        "is a binary cross entropy of targets below 0 or above 1",
        "Scale targets to 0 to 1, or use nn.MSELoss.",
    ),
    Formula(
        "half",
        lambda p: p.are_yes_or_no,
        lambda p: -float((p.rows[1] * np.log(np.maximum(p.sigmoids, _TINY))).mean()),
        "is the half of a binary cross entropy, t log(p), without (1 - t) log(1 - p)",
        _DEFINITION,
    ),
    Formula(
        "swapped",
        lambda p: p.are_yes_or_no and (p.o.min() < 0 or p.are_probabilities),
        lambda p: {
            "logits": _entropy_of_logits(p.rows[0], 1 - p.rows[1]),
            "probabilities": _entropy_of_probabilities(p.sigmoids, 1 - p.rows[1]),
        },
        "is a binary cross entropy of {} with 0 and 1 swapped in the targets",
        _DEFINITION,
    ),
    Formula(
        "hinge",
        lambda p: p.are_yes_or_no and bool(np.isin(p.t, (0, 1)).all()),
        lambda p: {
            "hinge loss": float(np.maximum(1 - p.rows[1] * p.rows[0], 0).mean()),
            "soft margin loss": float(np.logaddexp(0, -p.rows[1] * p.rows[0]).mean()),
        },
        "is a {}, which needs targets -1 and 1, of targets 0 and 1",
        "Map the targets: 2 * targets - 1.",
    ),
    Formula(
        "overlap",
        lambda p: p.are_yes_or_no,
        lambda p: dict(_overlaps(p.sigmoids, p.rows[1])),
        "is the overlap {}, so training makes it smaller",
        "Use 1 - overlap as the loss.",
    ),
    Formula(
        "probability",
        lambda p: p.are_yes_or_no and not p.are_probabilities,
        lambda p: {text: 1 - value for text, value in _overlaps(*p.rows)},
        "is 1 - {} of outputs outside of 0 to 1",
        "Put a sigmoid before this loss.",
    ),
    Formula(
        "row_sum",
        _are_no_distributions,
        _competing,
        "is a cross entropy of classes, of {} of targets that do not sum to 1 in each row",
        _MULTI_LABEL,
    ),
    Formula(
        "batch",
        lambda p: p.is_one_column and p.is_elementwise and abs(p.t.sum() - 1) > _FAR,
        lambda p: -float((p.t * log_softmax(p.o.reshape(p.t.shape), 0)).sum()),
        "is a cross entropy over the rows of the batch, as if they were classes",
        _ONE_SCORE,
    ),
    Formula(
        "scores",
        lambda p: p.is_elementwise and p.are_shares and p.o.shape[1:2] == (1,),
        lambda _: 0.0,
        "is exactly 0, as a cross entropy of one score is",
        _ONE_SCORE,
    ),
    Formula(
        "classes",
        lambda p: p.class_axis is not None and p.o.shape[p.class_axis] >= _MIN_CLASSES,
        _distances_from_number,
        "is the {} distance of every score from the number of the class",
        _CLASS_LOSS,
    ),
    Formula(
        "axis",
        lambda p: p.class_axis is not None,
        _other_softmax,
        "is a cross entropy with the softmax along dimension {}",
        "Give the softmax the dimension of the classes: dim=1 of [B, C] and [B, C, T].",
    ),
)
"""Losses that train the wrong thing."""

DOUBLE_ACTIVATIONS: Final = (
    Formula(
        "sigmoid",
        lambda p: p.are_yes_or_no and p.are_probabilities,
        lambda p: _entropy_of_logits(*p.rows),
        "has probabilities, and the loss applies a sigmoid to them again",
    ),
    Formula(
        "softmax",
        lambda p: p.are_classes_likely,
        lambda p: p.entropy_of_scores,
        "has probabilities, and the loss applies a softmax to them again",
    ),
)
"""Losses that apply an activation to probabilities."""
