"""Prints what happens now, with the elapsed time."""

from __future__ import annotations

import time

from rich.console import Console

__all__ = ["Timeline"]


class Timeline:
    """Lines with the time since the first one could be printed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The elapsed time."""
        return time.monotonic() - self._started

    def heading(self, text: str) -> None:
        """Print the heading of the lines that follow."""
        self._console.print(f"\n{text}", style="bold", markup=False, highlight=False)

    def line(self, text: str) -> None:
        """Print a line."""
        shown = f"{self.seconds:4.0f} s  {text}"
        self._console.print(shown, markup=False, highlight=False, soft_wrap=True)
