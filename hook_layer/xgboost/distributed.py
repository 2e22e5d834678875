"""The rank of this process in xgboost.collective, and messages of rank 0 to the others."""

from __future__ import annotations

import numpy as np
from xgboost import collective

__all__ = ["rank_and_size", "shared_text"]


def rank_and_size() -> tuple[int, int]:
    """Return rank and number of workers; (0, 1) outside of a communicator."""
    return collective.get_rank(), collective.get_world_size()


def shared_text(text: str) -> str:
    """Return what rank 0 gives, in every rank; all ranks must call this at the same point.

    It is one reduction of one number where rank 0 gives nothing.

    Args:
        text: The text; only that of rank 0 counts.

    Raises:
        XGBoostError: The workers cannot reach each other.
    """
    own = np.frombuffer(text.encode(), np.uint8)
    if collective.get_rank() != 0:
        own = own[:0]
    (length,) = collective.allreduce(np.array([own.size], np.int64), collective.Op.MAX)
    if not length:
        return ""
    content = np.zeros(length, np.uint8)
    content[: own.size] = own
    return collective.allreduce(content, collective.Op.MAX).tobytes().decode()
