"""Labels of a step that repeat those of the step before."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["is_repeated"]

_MAX_KEYS: Final = 256
"""Keys whose latest labels are remembered; it bounds the memory."""
_MIN_LABELS: Final = 16
"""Labels that are hardly equal by chance."""


def is_repeated(labels: npt.NDArray[Any], latest: dict[str, int], key: str) -> bool:
    """Return whether labels are the latest ones of a key again, and remember them.

    Args:
        labels: Labels of one step [N].
        latest: Checksum of the latest labels of each of at most 256 keys. Changed in place.
        key: Whose labels these are.
    """
    checksum = zlib.crc32(np.ascontiguousarray(labels).tobytes())
    before = latest.get(key)
    if before is not None or len(latest) < _MAX_KEYS:
        latest[key] = checksum
    can_differ = labels.size >= _MIN_LABELS and bool((labels != labels.flat[0]).any())
    return before == checksum and can_differ
