"""Recognises by which formula a loss was computed, from its outputs, targets and value.

Shape legend: B = rows, C = columns or classes, ... = further dimensions, N = all elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

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
_MAX_ELEMENTS: Final = 1 << 20
"""Elements of outputs; larger ones take too long."""
_MIN_ROWS: Final = 8
"""Rows; fewer match too many formulas."""
_MAX_VARIANTS: Final = 32
"""Columns or classes of which each is a variant of a formula."""
_SUM_ERROR: Final = 1e-3
"""Error of a sum of probabilities."""
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
_LARGEST_EXPONENT: Final = 700.0
_TINY: Final = float(np.finfo(np.float32).tiny)


class _Pair:
    """Outputs and targets as float64, with what several formulas need of them."""

    def __init__(self, outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> None:
        self.o: _Numbers = outputs.astype(np.float64)
        self.t: _Numbers = targets.astype(np.float64)
        if self.are_distributions and np.isin(self.t, (0, 1)).all():
            self.t = self.t.argmax(axis=1).astype(np.float64)  # one-hot
        elif self.t.ndim == _MATRIX and (self.t == self.t[:, :1]).all():
            self.t = self.t[:, 0]  # broadcast over columns
        del self.are_distributions

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether each output has its own target."""
        return self.o.size == self.t.size

    @cached_property
    def rows(self) -> tuple[_Numbers, _Numbers]:
        """Outputs and targets [B, C]."""
        return self.o.reshape(len(self.o), -1), self.t.reshape(len(self.o), -1)

    @cached_property
    def errors(self) -> _Numbers:
        """Outputs less targets [B, C]; less one target for all, if there is only one."""
        if self.t.size == 1:
            return self.o.reshape(len(self.o), -1) - self.t.reshape(())
        return self.rows[0] - self.rows[1]

    @cached_property
    def are_shares(self) -> bool:
        """Whether all targets lie between 0 and 1."""
        return bool(self.t.min() >= 0 and self.t.max() <= 1)

    @cached_property
    def are_distributions(self) -> bool:
        """Whether targets are probabilities of classes, in the shape of the outputs."""
        if self.o.shape != self.t.shape or self.o.ndim < _MATRIX or self.o.shape[1] == 1:
            return False
        return bool(self.t.min() >= 0 and np.allclose(self.t.sum(axis=1), 1, atol=_SUM_ERROR))

    @cached_property
    def are_yes_or_no(self) -> bool:
        """Whether targets are independent answers from 0 (no) to 1 (yes)."""
        return self.is_elementwise and self.are_shares and not self.are_distributions

    @cached_property
    def are_numbers(self) -> bool:
        """Whether targets are numbers outside of 0 to 1."""
        return self.is_elementwise and not self.are_shares

    @cached_property
    def are_probabilities(self) -> bool:
        """Whether all outputs lie between 0 and 1."""
        return bool(self.o.min() >= 0 and self.o.max() <= 1 + _SUM_ERROR)

    @cached_property
    def are_classes_likely(self) -> bool:
        """Whether outputs are probabilities that sum to 1 over the classes."""
        axis = self.class_axis
        if axis is None or not self.are_probabilities:
            return False
        return bool(np.allclose(self.o.sum(axis=axis), 1, atol=_SUM_ERROR))

    @cached_property
    def sigmoids(self) -> _Numbers:
        """Outputs as probabilities of yes [B, C]."""
        o = self.rows[0]
        clipped = np.clip(o, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        return o if self.are_probabilities else 1 / (1 + np.exp(-clipped))

    @cached_property
    def is_one_column(self) -> bool:
        """Whether there is one output in each row."""
        return self.o.size == len(self.o)

    @cached_property
    def class_axis(self) -> int | None:
        """The dimension of the classes, where targets are numbers of classes."""
        o, t = self.o, self.t
        for axis in sorted({1, o.ndim - 1} - {0}):
            classes = o.shape[axis] if axis < o.ndim else 0
            others = o.shape[:axis] + o.shape[axis + 1 :]
            if classes > 1 and others == t.shape:
                return axis if self._are_classes(classes) else None
        return None

    def _are_classes(self, num_classes: int) -> bool:
        t = self.t
        return bool(t.min() >= 0 and t.max() < num_classes and (t == np.floor(t)).all())

    @cached_property
    def own_index(self) -> npt.NDArray[np.int64]:
        """Numbers of classes, in the shape of outputs but for the class dimension, which is 1."""
        axis = self.class_axis or 0
        shape = (*self.o.shape[:axis], 1, *self.o.shape[axis + 1 :])
        return self.t.astype(np.int64).reshape(shape)

    def own(self, values: _Numbers) -> _Numbers:
        """Return the values [like outputs] of each row's own class."""
        return np.take_along_axis(values, self.own_index, self.class_axis or 0)

    @cached_property
    def entropy_of_scores(self) -> float:
        """Cross entropy of the softmax of outputs over the classes."""
        return -float(self.own(_log_softmax(self.o, self.class_axis or 0)).mean())


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
    applies: Callable[[_Pair], bool]
    values: Callable[[_Pair], float | _Values]
    message: str = ""
    remedy: str = ""


class Match(NamedTuple):
    """A wrong formula by which a loss is computed.

    Attributes:
        name: Name of the formula.
        message: What is wrong.
        remedy: What to do.
        expected: What a right formula gives.
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
    pair = _pair(*values)
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
            expected = next(iter(right.values()), 0.0)
            return Match(formula.name, formula.message.format(text), formula.remedy, expected)
    return None


def _pair(outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> _Pair | None:
    """Return outputs and targets; None if they are too few or many, not finite, or constant."""
    if outputs.dtype.kind != "f" or targets.dtype.kind not in "biuf" or not outputs.ndim:
        return None
    if not _MIN_ROWS <= len(outputs) <= outputs.size <= _MAX_ELEMENTS or not targets.size:
        return None
    is_known = np.isfinite(outputs).all() and np.isfinite(targets).all() and np.ptp(outputs) > 0
    varies = targets.size == 1 or np.ptp(targets.astype(np.float64)) > 0
    return _Pair(outputs, targets) if is_known and varies else None


def _computed(formulas: Sequence[Formula], pair: _Pair) -> Iterator[tuple[Formula, str, float]]:
    """Yield the formulas that apply, what distinguishes their values, and the values."""
    for formula in formulas:
        if not formula.applies(pair):
            continue
        values = formula.values(pair)
        by_text = values if isinstance(values, Mapping) else {"": float(values)}
        for text, value in by_text.items():
            yield formula, text, value


def _is_near(value: float, loss: float, pair: _Pair) -> bool:
    """Return whether a loss is a mean, or its sum over columns or all elements."""
    factors = {1, pair.t.size // len(pair.o) or 1, pair.t.size}
    return any(
        abs(factor * value - loss) <= _TOLERANCE * abs(loss) + _ROUNDING for factor in factors
    )


# Parts of formulas --------------------------------------------------------------------------------


def _log_softmax(scores: _Numbers, axis: int) -> _Numbers:
    apart = scores - scores.max(axis=axis, keepdims=True)
    return np.asarray(apart - np.log(np.exp(apart).sum(axis=axis, keepdims=True)))


def _entropy_of_logits(o: _Numbers, t: _Numbers) -> float:
    return float((np.logaddexp(0, o) - t * o).mean())


def _entropy_of_probabilities(p: _Numbers, t: _Numbers) -> float:
    log = np.log(np.maximum(p, _TINY))
    log_no = np.log(np.maximum(1 - p, np.finfo(np.float32).eps / 2))
    return -float((t * log + (1 - t) * log_no).mean())


def _right_losses(pair: _Pair) -> dict[str, float]:
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


def _each_pair(pair: _Pair) -> _Values:
    """Return means over all pairs of an output and a target."""
    o, t = pair.o.reshape(-1, 1), pair.t.reshape(1, -1)
    if o.size * t.size > _MAX_ELEMENTS:
        return {}
    errors = o - t
    return {
        f"the mean {of} of all {errors.size} differences": float(form(errors).mean())
        for of, form in (("square", np.square), ("size", np.abs))
    }


def _each_column(pair: _Pair) -> _Values:
    """Return mean errors of each column alone."""
    o, t = pair.rows
    forms = {"squared errors": np.square(pair.errors), "absolute errors": np.abs(pair.errors)}
    if pair.are_shares:
        forms = {"binary cross entropy": np.logaddexp(0, o) - t * o}
    return {
        f"{of} of column {column} of {o.shape[1]}": float(form[:, column].mean())
        for of, form in forms.items()
        for column in range(o.shape[1])
    }


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


def _competing(pair: _Pair) -> _Values:
    """Return cross entropies of classes, weighted by targets, and of the largest target alone."""
    losses = -_log_softmax(pair.o, 1)
    largest = np.expand_dims(pair.t.argmax(axis=1), 1)
    return {
        "all": float((pair.t * losses).sum(axis=1).mean()),
        "the largest": float(np.take_along_axis(losses, largest, 1).mean()),
    }


def _means(pair: _Pair) -> _Values:
    """Return squared differences of means over all outputs, rows or columns, and their size."""
    errors = pair.errors
    found = {
        "squared difference of the means": np.square(errors.mean()),
        "absolute difference of the means": abs(errors.mean()),
    }
    if min(errors.shape) > 1:
        found["squared difference of the means of rows"] = np.square(errors.mean(axis=1)).mean()
        found["squared difference of the means of columns"] = np.square(errors.mean(axis=0)).mean()
    return {text: float(value) for text, value in found.items()}


def _are_means_wrong(pair: _Pair) -> bool:
    """Tell whether means of outputs are to fit targets one by one.

    A single target with up to three decimals is a wish for the mean, such as a sparsity of 0.05.
    """
    if pair.t.size > 1:
        return pair.is_elementwise
    thousandths = 1000 * float(pair.t.reshape(()))
    return abs(thousandths - round(thousandths)) > _SUM_ERROR * max(1.0, abs(thousandths) / 1000)


def _distances_from_number(pair: _Pair) -> _Values:
    """Return distances of each score from the number of the class."""
    errors = pair.o - pair.own_index
    return {"squared": float(np.square(errors).mean()), "absolute": float(np.abs(errors).mean())}


def _other_softmax(pair: _Pair) -> _Values:
    """Return cross entropies with the softmax along a dimension that is not that of classes."""
    axes = [axis for axis in range(pair.o.ndim) if axis != pair.class_axis]
    return {
        f"{axis}, not {pair.class_axis}": -float(pair.own(_log_softmax(pair.o, axis)).mean())
        for axis in axes
    }


def _are_no_distributions(pair: _Pair) -> bool:
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
        "is {} of an output and a target, not of those that belong together",
        _SHAPES,
    ),
    Formula(
        "means",
        _are_means_wrong,
        _means,
        "is the {} of outputs and targets, in which errors cancel out",
        _MEAN_OF_ERRORS,
    ),
    Formula(
        "column",
        lambda p: p.is_elementwise and 1 < p.rows[0].shape[1] <= min(len(p.o), _MAX_VARIANTS),
        _each_column,
        "is the {} alone",
        "Compare all columns of outputs and targets.",
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
        "relative",
        lambda p: p.are_numbers and p.t.min() < 0 < p.t.max() and bool((p.t != 0).all()),
        lambda p: {
            text: factor * float(np.abs(p.errors / p.rows[1]).mean())
            for text, factor in (("targets", 1), ("targets, in percent", 100))
        },
        "is the error relative to {}, some of which are near 0",
        "Use nn.L1Loss or nn.MSELoss.",
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
        lambda p: -float((p.t * _log_softmax(p.o.reshape(p.t.shape), 0)).sum()),
        "is a cross entropy over the rows of the batch, as if they were classes",
        _ONE_SCORE,
    ),
    Formula(
        "scores",
        lambda p: p.is_one_column and p.is_elementwise,
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
