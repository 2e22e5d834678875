"""A training program, and one run of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["HEALTHY", "STALLS_AT", "Hanging", "Program", "Run"]

HEALTHY: Final = "healthy"
STALLS_AT: Final = 0.6
"""Share of the steps or rounds after which a stalled training hangs."""

_T = TypeVar("_T")


class Hanging(Exception):  # noqa: N818 - it is no error
    """Raised by a program where a stalled training hangs for ever."""


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        program: Name of the program.
        fault: The injected fault; `HEALTHY` for none.
        seed: Seed of initial weights and of the order of batches.
        folder: Output folder of the hook.
        pack: Name of the pack of rules whose collections the hook saves.
    """

    program: str
    fault: str
    seed: int
    folder: Path
    pack: str

    def injects(self, *faults: str) -> bool:
        """Return whether one of these faults is injected."""
        return self.fault in faults

    def pick(self, usual: _T, **faults: _T) -> _T:
        """Return the usual value, or the one for the fault that is injected."""
        return faults.get(self.fault, usual)


Program = Callable[[Run], float]
"""Trains once and returns an error of validation, lower is better; NaN if it measures none."""
