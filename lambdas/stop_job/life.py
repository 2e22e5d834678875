"""How far a job is on its way to its end."""

from __future__ import annotations

from enum import Enum

__all__ = ["Life"]


class Life(Enum):
    """What its platform, or its files, say of a job."""

    RUNNING = "nothing says that it ends"
    ENDING = "it was asked to stop, and saves what it has"
    ENDED = "it runs no more, or there is no such job"
