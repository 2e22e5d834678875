"""Keeps frames of ours out of the tracebacks of a script's errors."""

from __future__ import annotations

__all__ = ["hide_frame"]


def hide_frame(error: BaseException) -> None:
    """Leave the caller's frame out of the traceback of an error that it is about to `raise` again.

    Up to Python 3.10 the frame stays.

    Args:
        error: An error of something that the caller called.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
