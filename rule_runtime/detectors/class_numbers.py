"""Decides whether labels are numbers of classes, counted from step to step."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from rule_runtime.numerics.class_pairs import true_classes

__all__ = ["add_labels", "num_classes"]

_MIN_CLASSES: Final = 3
"""Classes; of two, 0 and 1 are fair targets of a distance."""
_MAX_CLASSES: Final = 32
"""Classes; more whole numbers are likely amounts."""
_MAX_IMBALANCE: Final = 3.0
"""Times that one class is as frequent as another; counts fall off faster."""
_LARGEST_COUNT: Final = 1 << 40


def add_labels(tally: dict[str, Any], labels: Any) -> None:
    """Add the labels of a step, unless they are the same as before, as in rounds of boosting.

    Args:
        tally: What is known so far, changed in place: `counts` of each class, None once labels were
            no classes; `last`, a number that stands for the latest labels.
        labels: Labels of any shape.
    """
    counts = tally.setdefault("counts", [0] * _MAX_CLASSES)
    number = zlib.crc32(np.ascontiguousarray(labels).tobytes())
    is_repeated = tally.get("last") == number
    tally["last"] = number
    if counts is None or is_repeated or not np.size(labels):
        return
    try:
        classes = true_classes(labels)
    except ValueError:
        tally["counts"] = None
        return
    if len(classes) != np.size(labels) or classes.max() >= _MAX_CLASSES:
        tally["counts"] = None
        return
    added = np.bincount(classes, minlength=_MAX_CLASSES).tolist()
    tally["counts"] = [min(a + b, _LARGEST_COUNT) for a, b in zip(counts, added, strict=True)]


def num_classes(tally: dict[str, Any], min_labels: int) -> int | None:
    """Return the number of classes: all numbers from 0 on occur, each about as often.

    Args:
        tally: See `add_labels`.
        min_labels: Labels that must have been counted.

    Returns:
        None if labels do not look like numbers of classes, or are too few.
    """
    counts = tally.get("counts") or []
    seen = [count for count in counts if count]
    if sum(seen) < min_labels or len(seen) < _MIN_CLASSES or not all(counts[: len(seen)]):
        return None
    return len(seen) if max(seen) <= _MAX_IMBALANCE * min(seen) else None
