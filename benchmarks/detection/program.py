"""What a training program is, and what one run of it is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["HEALTHY", "Hanging", "Program", "Run"]

HEALTHY: Final = "healthy"

_T = TypeVar("_T")


class Hanging(Exception):  # noqa: N818 - it is no error
    """Raised by a program in the place where a stalled training would hang for ever."""


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        program: Name of the program.
        fault: What is injected; `HEALTHY` for nothing.
        seed: Seed of initial weights and of the order of batches.
        folder: Where the hook writes.
        pack: Name of the pack of rules that says what the hook saves.
    """

    program: str
    fault: str
    seed: int
    folder: Path
    pack: str

    def injects(self, *faults: str) -> bool:
        """Tell whether one of these faults is injected."""
        return self.fault in faults

    def pick(self, usual: _T, **faults: _T) -> _T:
        """Return the usual value, or the one for the fault that is injected."""
        return faults.get(self.fault, usual)


@dataclass(frozen=True)
class Program:
    """A training as a user would write it, in which faults can be injected.

    Attributes:
        model: What is trained, in words.
        data: On what, in words.
        measure: What `train` returns: an error of validation, lower is better.
        train: Trains once and returns the error.
        faults: For each kind of fault what exactly is changed.
    """

    model: str
    data: str
    measure: str
    train: Callable[[Run], float]
    faults: Mapping[str, str]
