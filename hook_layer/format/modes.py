"""The modes of steps."""

from __future__ import annotations

from enum import Enum

__all__ = ["ModeKeys"]


class ModeKeys(Enum):
    """Mode of a step; the values are stored in event files."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4
