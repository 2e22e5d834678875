"""Formulas of losses that are written wrongly, known again by outputs, targets and the loss.

Shape legend: B = rows, ... = columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.overlap import overlap_of

__all__ = ["is_size_of_mean", "wrong_formula"]

_Numbers = npt.NDArray[np.float64]
_Found = Iterator[tuple[str, float, float]]
_MOST_ELEMENTS: Final = 1 << 18
_FEWEST: Final = 8
_CLOSE: Final = 1e-4
_TELLING: Final = 2e-3
_CANCELLED: Final = 0.8
_LEAST: Final = 1e-6
_SEVERAL: Final = 1.01
_LOOSELY: Final = 1e-3
_NEXT_TO_NONE: Final = 0.01


def wrong_formula(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float, before: str | None = None
) -> tuple[str, float] | None:
    """Return of which wrong formula a loss is, in words, and what the right one gives.

    Of targets from 0 to 1: a cross entropy of yes and no with yes alone, or with both mixed up; a
    hinge, or its smooth form, of 0 and 1; a cross entropy of classes of which several hold
    together; an overlap that is to fall. Of other numbers: a cross entropy of yes and no, which
    they cannot be; the square of how far means are apart, of all elements, or of all rows or all
    columns of several; errors as parts of targets of both signs. Of both: one of several columns
    alone.

    Args:
        outputs: Outputs [B, ...], scores or probabilities.
        targets: Targets, as many.
        loss: The loss, as a mean; some also as a sum of each row, or of all.
        before: Of which formula it was at another step: that is known again to 0.1 % of what the
            right one gives, for what is wrong soon is nearly 0.

    Returns:
        None if it is none of these, or the right one gives nearly the same.
    """
    pair = _pair(outputs, targets)
    if pair is None or not math.isfinite(loss) or (abs(loss) < _LEAST and before is None):
        return None
    o, t = pair
    is_share = t.min() >= 0 and t.max() <= 1
    if is_share and t.shape[1] > 1 and np.allclose(t.sum(axis=1), 1, atol=_CLOSE):
        return None  # classes, or their probabilities
    factors = (1.0, t.shape[1], t.size) if is_share else (1.0, t.shape[1], t.shape[1] ** 2)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for told, wrong, right in _of_shares(o, t, loss) if is_share else _of_numbers(o, t):
            is_telling = abs(wrong - right) > _TELLING * max(abs(wrong), abs(right))
            near = _CLOSE * abs(loss)
            for factor in factors if is_telling else ():
                far = _LOOSELY * factor * abs(right) if told == before else 0.0
                if abs(factor * wrong - loss) <= max(near, far):
                    return told, factor * right
    return None


def is_size_of_mean(outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float) -> int:
    """Return whether a loss is the size of the mean difference, in which errors cancel out.

    Args:
        outputs: Outputs [B, ...].
        targets: Targets, as many.
        loss: The loss.

    Returns:
        1 if it is, and the difference is above 0, -1 if it is below; 0 if it is not.
    """
    pair = _pair(outputs, targets)
    if pair is None or not math.isfinite(loss) or loss < _LEAST:
        return 0
    error = pair[0] - pair[1]
    mean = float(error.mean())
    if abs(mean) > _CANCELLED * np.abs(error).mean():
        return 0  # nearly all errors are of one side
    return int(math.copysign(1, mean)) if math.isclose(abs(mean), loss, rel_tol=_CLOSE) else 0


def _pair(outputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> tuple[_Numbers, _Numbers] | None:
    """Return outputs and targets by row; None if they are not as many, or none that vary."""
    if outputs.size != targets.size or not _FEWEST <= targets.size <= _MOST_ELEMENTS:
        return None
    if outputs.dtype.kind != "f" or targets.dtype.kind not in "biuf" or not targets.ndim:
        return None
    o, t = (of.astype(np.float64).reshape(len(targets), -1) for of in (outputs, targets))
    is_known = np.isfinite(o).all() and np.isfinite(t).all()
    return (o, t) if is_known and np.ptp(o) > 0 and np.ptp(t) > 0 else None


def _of_shares(o: _Numbers, t: _Numbers, loss: float) -> _Found:
    """Yield wrong formulas of targets from 0 to 1, what they give, and what the right one gives."""
    p = o if o.min() >= 0 and o.max() <= 1 else 1 / (1 + np.exp(-np.clip(o, -700, 700)))
    measure = overlap_of(p, t, 1 - loss)
    overlap = loss if measure else float(2 * (p * t).sum() / (p + t).sum())
    if measure or overlap < _NEXT_TO_NONE:
        yield "the overlap, which is to grow", overlap, 1 - overlap
    forms = [(np.logaddexp(0, -o), np.logaddexp(0, o))]
    if o.min() >= 0 and o.max() <= 1:
        least, no = np.finfo(np.float32).eps, 1 - o
        forms.append((-np.log(np.maximum(o, least)), -np.log(np.maximum(no, least))))
    for of_yes, of_no in forms:
        each = t * of_yes + (1 - t) * of_no
        right = float(each.mean())
        yield "a cross entropy of yes alone, t log(p)", float((t * of_yes).mean()), right
        if o.min() < 0 or of_yes is not forms[0][0]:  # a distance is large where both are unlike
            mixed_up = float((t * of_no + (1 - t) * of_yes).mean())
            yield "a cross entropy that takes yes for no, and no for yes", mixed_up, right
        yield from _of_columns(each)
    if not np.isin(t, (0, 1)).all():
        return
    signs = 2 * t - 1
    hinges = [float(np.maximum(1 - of * o, 0).mean()) for of in (t, signs)]
    yield "a hinge, which takes -1 and 1, of targets 0 and 1", hinges[0], hinges[1]
    smooth = [float(np.logaddexp(0, -of * o).mean()) for of in (t, signs)]
    yield "log(1 + exp(-t o)), which takes -1 and 1, of targets 0 and 1", smooth[0], smooth[1]
    if t.shape[1] > 1 and t.sum(axis=1).mean() > _SEVERAL:
        highest = o.max(axis=1, keepdims=True)
        minus_logarithms = highest + np.log(np.exp(o - highest).sum(axis=1, keepdims=True)) - o
        columns = t.shape[1]
        first = float(minus_logarithms[np.arange(len(t)), t.argmax(axis=1)].mean())
        text = "a cross entropy of classes that exclude each other, and several hold together"
        yield text, first / columns, right
        yield text, float((t * minus_logarithms).mean()), right


def _of_numbers(o: _Numbers, t: _Numbers) -> _Found:
    """Yield wrong formulas of numbers, what they give, and what the right one gives."""
    error = o - t
    square = float(np.square(error).mean())
    text = "a cross entropy of yes and no, with targets below 0 or above 1"
    yield text, float((np.logaddexp(0, o) - t * o).mean()), square
    yield from _of_columns(np.square(error))
    yield from _of_columns(np.abs(error))
    if t.min() < 0 < t.max() and (t != 0).all():
        relative = float(np.abs(error / t).mean())
        text = "the errors as parts of targets, of which some are next to 0"
        right = float(np.abs(error).mean() / np.abs(t).mean())
        yield text, relative, right
        yield text, 100 * relative, 100 * right
    means = [("all outputs", np.array([error.mean()]))]
    if min(error.shape) > 1:
        means += [("rows", error.mean(axis=1)), ("columns", error.mean(axis=0))]
    for of, mean in means:
        text = f"how far the means of {of} are from those of targets"
        if abs(error.mean()) <= _CANCELLED * np.abs(error).mean():
            yield text, float(np.square(mean).mean()), square


def _of_columns(each: _Numbers) -> _Found:
    """Yield the mean of each column alone, and of all."""
    if not 1 < each.shape[1] <= len(each):
        return
    for column, mean in enumerate(each.mean(axis=0)):
        yield f"of column {column} of {each.shape[1]} alone", float(mean), float(each.mean())
