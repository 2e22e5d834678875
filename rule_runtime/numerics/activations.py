"""Detects activations of tensors by their minima and maxima.

ReLU, tanh, sigmoid and softplus are monotonic: the extremes of an output are the activation of the
extremes of its input.

Shape legend: R = tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["ROUNDING", "activated_twice", "squashed"]

_Ends = npt.NDArray[np.float64]
_Function = Callable[[_Ends], _Ends]

ROUNDING: Final = 1e-5
"""Relative error of an extreme or a mean: float32 activations."""
_APART: Final = 1e-3
"""Minimum difference of two functions at an extreme, relative to it if it is above 1."""
_SATURATED: Final = (-1.0, 0.0, 1.0)
"""Maxima that many unrelated tensors share."""


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
    """Return which tensors [R] are an activation of an activation of a source.

    These are tanh or sigmoid of a ReLU, tanh or sigmoid, or softplus of a softplus or ReLU. `ends`
    are minimum and maximum of each tensor [R, 2]. Only tensors of the same group are compared.
    """
    return _made_by(_TWICE, _ONCE, (ends, groups, is_source))


def squashed(
    ends: _Ends, groups: npt.NDArray[np.int64], is_source: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which tensors [R] are the tanh or sigmoid of a source; see `activated_twice`."""
    return _made_by(_SQUASHING, _FEW, (ends, groups, is_source))


def _made_by(
    functions: Sequence[_Function],
    others: Sequence[_Function],
    tensors: tuple[_Ends, npt.NDArray[np.int64], npt.NDArray[np.bool_]],
) -> npt.NDArray[np.bool_]:
    """Return which tensors [R] match functions of a source that other functions do not match."""
    ends, groups, is_source = tensors
    sources = np.flatnonzero(is_source & np.isfinite(ends).all(axis=1))
    order = np.argsort(ends[:, 1], kind="stable")
    found, highest = np.zeros(len(ends), dtype=np.bool_), ends[order, 1]
    for function in functions:
        made = function(ends[sources])
        size = np.abs(made).max(axis=1)
        differences = [np.abs(made - other(ends[sources])).max(axis=1) for other in others]
        from_saturated = np.abs(made[:, 1:] - _SATURATED).min(axis=1)
        apart = np.minimum(np.min(differences, axis=0), from_saturated)
        begin = np.searchsorted(highest, made[:, 1] - ROUNDING * size)
        end = np.searchsorted(highest, made[:, 1] + ROUNDING * size, side="right")
        for at in np.flatnonzero((apart > _APART * np.maximum(size, 1)) & (end > begin)):
            near = order[begin[at] : end[at]]
            is_made = np.abs(ends[near, 0] - made[at, 0]) <= ROUNDING * size[at]
            found[near[is_made & (groups[near] == groups[sources[at]])]] = True
    return found
