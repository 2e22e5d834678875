"""Activations of activations, told by the smallest and largest element of what they are made of.

ReLU, tanh, sigmoid and softplus never fall: the extremes of their outputs are their values at the
extremes of their inputs. So what two of them in a row gave is known without looking at any other
element.

Shape legend: R = tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["activated_twice", "squashed"]

_Ends = npt.NDArray[np.float64]
_Function = Callable[[_Ends], _Ends]

_ROUNDING: Final = 1e-5
_APART: Final = 1e-3
_TIMES_ROUNDING: Final = 10.0
_FLAT: Final = (-1.0, 0.0, 1.0)
_MAX_CANDIDATES: Final = 16


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
    """Tell which tensors [R] are one activation of another of a source.

    That is tanh or sigmoid of a ReLU, tanh or sigmoid, or softplus of a softplus or ReLU.

    Args:
        ends: Smallest and largest element of each tensor [R, 2].
        groups: A number for each tensor [R]; only those with the same one are compared.
        is_source: Which tensors are sources [R].
    """
    return _made_by(_TWICE, _ONCE, (ends, groups, is_source))


def squashed(
    ends: _Ends, groups: npt.NDArray[np.int64], is_source: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which tensors [R] are the tanh or sigmoid of a source.

    Args:
        ends: Smallest and largest element of each tensor [R, 2].
        groups: A number for each tensor [R]; only those with the same one are compared.
        is_source: Which tensors are sources [R].
    """
    return _made_by(_SQUASHING, _FEW, (ends, groups, is_source))


def _made_by(
    functions: Sequence[_Function],
    others: Sequence[_Function],
    tensors: tuple[_Ends, npt.NDArray[np.int64], npt.NDArray[np.bool_]],
) -> npt.NDArray[np.bool_]:
    """Tell which tensors [R] functions make of a source where others would make something else."""
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
        # Many tensors reach up to 0 or 1 exactly: that tells nothing of what they are made of.
        from_flat = np.min([np.abs(made[:, 1] - value) for value in _FLAT], axis=0)
        # Of large numbers, functions that differ by less are the same within rounding.
        largest = _ROUNDING * np.abs(made).max(axis=1)
        least = np.maximum(_APART, _TIMES_ROUNDING * largest)
        is_telling = (np.min(apart, axis=0) > least) & (from_flat > _APART)
        margin = _ROUNDING * np.abs(made[:, 1])
        begin = np.searchsorted(highest, made[:, 1] - margin)
        end = np.searchsorted(highest, made[:, 1] + margin, side="right")
        for at in np.flatnonzero(is_telling & (end > begin)):
            near = by_highest[begin[at] : min(end[at], begin[at] + _MAX_CANDIDATES)]
            is_made = np.abs(ends[near, 0] - made[at, 0]) <= largest[at]
            found[near[is_made & (groups[near] == groups[sources[at]])]] = True
    return found
