"""How long one call may go on."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """Asked after each piece of work, so that every call gets one done.

    Args:
        may_go_on: Answers False when it is time to come back; None for as long as it takes.

    Attributes:
        is_used_up: True once the answer was False; nobody is asked again.
    """

    def __init__(self, may_go_on: Callable[[], bool] | None = None) -> None:
        self._may_go_on = may_go_on
        self.is_used_up = False

    def goes_on(self) -> bool:
        """Ask, and say whether another piece of work may be begun."""
        if not self.is_used_up and self._may_go_on is not None:
            self.is_used_up = not self._may_go_on()
        return not self.is_used_up
