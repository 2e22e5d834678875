"""Who this process is among the workers of Horovod."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["rank_and_size"]


def rank_and_size() -> tuple[int, int]:
    """Return rank and number of workers; (0, 1) where the script does not use Horovod."""
    horovod: Any = sys.modules.get("horovod.mxnet")
    if horovod is None or not horovod.is_initialized():
        return 0, 1
    return int(horovod.rank()), int(horovod.size())
