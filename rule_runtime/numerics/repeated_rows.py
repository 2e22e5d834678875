"""Telling rows that come again, each by itself or all of a round, from new ones."""

from __future__ import annotations

import math
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_ROWS", "are_new", "is_repeated"]

MAX_ROWS: Final = 400
"""So many rows are remembered."""

_WORD: Final = 8
_MANY_ROWS: Final = 1 << 16
_MIXING: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MAX_KEYS: Final = 256
_MIN_ROWS: Final = 16


def is_repeated(labels: npt.NDArray[Any], latest: dict[str, int], key: str) -> bool:
    """Return whether labels are the latest ones of a key again, and remember them.

    Args:
        labels: Labels of one step [N].
        latest: A number that stands for the latest labels of each of at most 256 keys.
        key: Whose labels these are.
    """
    number = zlib.crc32(np.ascontiguousarray(labels).tobytes())
    before = latest.get(key)
    if before is not None or len(latest) < _MAX_KEYS:
        latest[key] = number
    # A few labels, or labels of one class, are often equal by chance.
    is_telling = labels.size >= _MIN_ROWS and bool((labels != labels.flat[0]).any())
    return before == number and is_telling


def are_new(values: npt.NDArray[Any], seen: list[int]) -> npt.NDArray[np.bool_]:
    """Tell which rows are seen for the first time, and remember them.

    Args:
        values: Numbers [B, ...]; of more than 65,536 rows equal ones may all be new.
        seen: Numbers that stand for the first 400 rows that were new; rows behind these are new
            wherever they are none of them.
    """
    numbers = _numbers(values)
    is_new = ~np.isin(numbers, np.asarray(seen, np.uint64))
    if len(numbers) <= _MANY_ROWS:
        again = np.ones(len(numbers), np.bool_)
        again[np.unique(numbers, return_index=True)[1]] = False
        is_new &= ~again
    seen += numbers[is_new][: max(MAX_ROWS - len(seen), 0)].tolist()
    return is_new


def _numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return a number of 32 bits for each row [B]."""
    flat = np.ascontiguousarray(values.reshape(len(values), math.prod(values.shape[1:])))
    flat = flat.view(np.uint8)
    padded = np.pad(flat, ((0, 0), (0, -flat.shape[1] % _WORD)))
    words = padded.view(np.uint64)
    shift = np.uint64(32)
    # Bits are mixed first: those of floats differ in a few high ones only, which products lose.
    for factor in _MIXING:
        words = (words ^ (words >> shift)) * np.uint64(factor)
    odd = 2 * np.random.default_rng(0).integers(0, 1 << 62, words.shape[1], np.uint64) + 1
    total: npt.NDArray[np.uint64] = ((words ^ (words >> shift)) * odd).sum(1, dtype=np.uint64)
    numbers: npt.NDArray[np.uint64] = total >> shift
    return numbers
