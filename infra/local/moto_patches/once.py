"""What makes a patch of moto idempotent."""

from __future__ import annotations

import functools
from collections.abc import Callable

__all__ = ["once"]


def once(patch: Callable[[], None]) -> Callable[[], None]:
    """Return a patch that does nothing from its second call on."""
    applied = False

    @functools.wraps(patch)
    def apply() -> None:
        nonlocal applied
        if not applied:
            patch()
            applied = True

    return apply
