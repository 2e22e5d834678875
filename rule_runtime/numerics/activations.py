"""Detects by minima and maxima which activations tensors went through.

ReLU, tanh, sigmoid and softplus are monotonic: the extremes of an output are the activation of the
extremes of its input.

Shape legend: R = tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["activated_twice", "in_range_of_two", "is_softmax", "squashed"]

_Ends = npt.NDArray[np.float64]
_Function = Callable[[_Ends], _Ends]

_ROUNDING: Final = 1e-5
"""Error of an extreme, relative to the largest one: float32 activations."""
_APART: Final = 1e-3
"""How far two functions of an extreme must differ, and an extreme from -1, 0 and 1."""
_TIMES_ROUNDING: Final = 10.0
"""Times the rounding by which two functions of large numbers must differ."""
_SATURATED: Final = (-1.0, 0.0, 1.0)
"""Maxima that many tensors have, whatever they are made of."""
_MAX_CANDIDATES: Final = 16
"""Tensors with nearly the same maximum that are compared."""
_CLOSE: Final = 1e-4
"""Error of an end of a range, and of a mean of probabilities."""
_NEAR: Final = 0.02
"""How near extremes must come to both ends of a range."""
_HALF: Final = 0.5
_SIGMOID_OF_1: Final = 1 / (1 + math.exp(-1))


def _relu(ends: _Ends) -> _Ends:
    return np.maximum(ends, 0)


def _sigmoid(ends: _Ends) -> _Ends:
    return 0.5 + 0.5 * np.tanh(ends / 2)


def _softplus(ends: _Ends) -> _Ends:
    return np.logaddexp(ends, 0)


def _after(second: _Function, first: _Function) -> _Function:
    return lambda ends: second(first(ends))


_SQUASHING: Final[tuple[_Function, ...]] = (np.tanh, _sigmoid)
_FEW: Final[tuple[_Function, ...]] = (np.positive, _relu)
_ONCE: Final = (*_FEW, *_SQUASHING, _softplus)
_TWICE: Final = (
    *(_after(second, first) for second in _SQUASHING for first in (_relu, *_SQUASHING)),
    *(_after(_softplus, first) for first in (_softplus, _relu)),
)


def activated_twice(
    ends: _Ends, groups: npt.NDArray[np.int64], is_source: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which tensors [R] are one activation of another activation of a source.

    That is tanh or sigmoid of a ReLU, tanh or sigmoid, or softplus of a softplus or ReLU.

    Args:
        ends: Minimum and maximum of each tensor [R, 2].
        groups: A number for each tensor [R]; only tensors with the same number are compared.
        is_source: Which tensors are sources [R].
    """
    return _made_by(_TWICE, _ONCE, (ends, groups, is_source))


def squashed(
    ends: _Ends, groups: npt.NDArray[np.int64], is_source: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which tensors [R] are the tanh or sigmoid of a source.

    Args:
        ends: Minimum and maximum of each tensor [R, 2].
        groups: A number for each tensor [R]; only tensors with the same number are compared.
        is_source: Which tensors are sources [R].
    """
    return _made_by(_SQUASHING, _FEW, (ends, groups, is_source))


def is_softmax(ends: tuple[float, float], mean: float, shape: tuple[int, ...] | None) -> bool:
    """Tell whether a tensor is the output of a softmax: from 0 to 1, with mean 1 / classes.

    Args:
        ends: Its minimum and maximum.
        mean: Its mean.
        shape: Its shape, with the classes in dimension 1 or the last one; None if not known.
    """
    if not (ends[0] >= 0 and _CLOSE < ends[1] <= 1 + _APART and ends[0] < ends[1]):
        return False
    classes = {round(1 / mean)} if shape is None else {*shape[1:2], *shape[-1:]} - {1}
    return any(abs(mean * size - 1) < _CLOSE for size in classes)


def in_range_of_two(
    ends: tuple[float, float], shape: tuple[int, ...] | None, *, are_logits: bool
) -> bool:
    """Tell whether a tensor reaches both ends of what a second activation can give, not beyond.

    A sigmoid of a sigmoid lies between 0.5 and 0.731; the logarithm of a softmax of a softmax of C
    classes between -ln(e + C - 1) and 1 more; logits after a sigmoid or tanh between 0 or -1 and 1.

    Args:
        ends: Its minimum and maximum.
        shape: Its shape, with the classes in dimension 1 or the last one; None if not known.
        are_logits: Whether a loss that takes logits gets it.
    """
    ranges = [(_HALF, _SIGMOID_OF_1)]
    ranges += [(0.0, 1.0), (-1.0, 1.0)] if are_logits else []
    for size in {*(shape or ())[1:2], *(shape or ())[-1:]} - {1}:
        lowest = -math.log(math.e + size - 1)
        ranges.append((lowest, lowest + 1))
    is_sigmoid_of_relu = ends[0] == _HALF < ends[1] <= 1
    return is_sigmoid_of_relu or any(
        -_CLOSE < ends[0] - low < _NEAR and -_CLOSE < high - ends[1] < _NEAR for low, high in ranges
    )


def _made_by(
    functions: Sequence[_Function],
    others: Sequence[_Function],
    tensors: tuple[_Ends, npt.NDArray[np.int64], npt.NDArray[np.bool_]],
) -> npt.NDArray[np.bool_]:
    """Tell which tensors [R] functions make of a source where others make something else."""
    ends, groups, is_source = tensors
    found = np.zeros(len(ends), dtype=bool)
    sources = np.flatnonzero(is_source & np.isfinite(ends).all(axis=1))
    if not sources.size:
        return found
    by_highest = np.argsort(ends[:, 1], kind="stable")
    highest = ends[by_highest, 1]
    for function in functions:
        made = function(ends[sources])
        apart = [np.abs(made - other(ends[sources])).max(axis=1) for other in others]
        from_saturated = np.min([np.abs(made[:, 1] - value) for value in _SATURATED], axis=0)
        rounding = _ROUNDING * np.abs(made).max(axis=1)
        least = np.maximum(_APART, _TIMES_ROUNDING * rounding)
        is_distinct = (np.min(apart, axis=0) > least) & (from_saturated > _APART)
        margin = _ROUNDING * np.abs(made[:, 1])
        begin = np.searchsorted(highest, made[:, 1] - margin)
        end = np.searchsorted(highest, made[:, 1] + margin, side="right")
        for at in np.flatnonzero(is_distinct & (end > begin)):
            near = by_highest[begin[at] : min(end[at], begin[at] + _MAX_CANDIDATES)]
            is_made = np.abs(ends[near, 0] - made[at, 0]) <= rounding[at]
            found[near[is_made & (groups[near] == groups[sources[at]])]] = True
    return found
