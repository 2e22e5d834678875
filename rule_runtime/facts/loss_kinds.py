"""What a loss is of."""

from __future__ import annotations

from enum import Enum

__all__ = ["LossKind"]


class LossKind(Enum):
    """What a loss is of.

    Attributes:
        CLASSES: Cross entropy of several classes.
        BINARY: Cross entropy of yes or no.
        SQUARES: Mean square of differences.
        DISTANCES: Mean size of differences, or a mean between that and half of their square.
        LOOKS_LIKE_CLASSES: The name does not tell, but scores are compared with numbers of classes.
        UNKNOWN: Nobody knows.
    """

    CLASSES = "classes"
    BINARY = "binary"
    SQUARES = "squares"
    DISTANCES = "distances"
    LOOKS_LIKE_CLASSES = "looks like classes"
    UNKNOWN = "unknown"

    @property
    def is_of_classes(self) -> bool:
        """Whether it is a cross entropy of several classes, or looks like one."""
        return self in (LossKind.CLASSES, LossKind.LOOKS_LIKE_CLASSES)

    @property
    def is_of_numbers(self) -> bool:
        """Whether it is known to be of differences of numbers."""
        return self in (LossKind.SQUARES, LossKind.DISTANCES)
