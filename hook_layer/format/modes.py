"""The modes of steps."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["WITHOUT_TRAINING", "ModeKeys"]


class ModeKeys(Enum):
    """Mode of a step; the values are stored in event files."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


WITHOUT_TRAINING: Final = (ModeKeys.EVAL, ModeKeys.PREDICT)
"""Modes in which no optimizer steps."""
