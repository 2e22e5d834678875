"""Stages of a job's end."""

from __future__ import annotations

from enum import Enum

__all__ = ["Life"]


class Life(Enum):
    """Stage of a job according to its platform or its files."""

    RUNNING = "nothing says that it ends"
    ENDING = "it was asked to stop, and saves what it has"
    ENDED = "it runs no more, or there is no such job"
