"""Removes Stepwatch's frames from tracebacks of a script's errors."""

from __future__ import annotations

__all__ = ["hide_frame"]


def hide_frame(error: BaseException) -> None:
    """Remove the caller's frame from the traceback of an error that it is about to re-raise.

    The frame stays in Python 3.10 and earlier.

    Args:
        error: An error of a function that the caller called.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
