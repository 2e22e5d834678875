"""Determines the steps at which a hook saves a collection, from the parameters of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["MODES", "SaveSteps"]

MODES: Final = ("train", "eval", "predict", "global")
"""Prefixes of parameters that apply to one mode."""


@dataclass(frozen=True)
class SaveSteps:
    """The steps at which a collection is saved in one mode.

    Attributes:
        interval: Interval of saved steps; None if not set.
        start: First step; None if not set.
        end: First step that is not saved; None if not set.
        listed: Steps that are always saved.
    """

    interval: int | None
    start: int | None
    end: int | None
    listed: tuple[int, ...]

    @classmethod
    def of(cls, hook: Mapping[str, str], collection: Mapping[str, str], mode: str) -> SaveSteps:
        """Return the save steps of a collection in a mode; the most specific parameter wins.

        Args:
            hook: Checked parameters of the hook.
            collection: Checked parameters of the collection.
            mode: One of `MODES`.
        """

        def found(key: str) -> str | None:
            for parameters in (collection, hook):
                for name in (f"{mode}.{key}", key):
                    if name in parameters:
                        return parameters[name]
            return None

        def number(key: str) -> int | None:
            value = found(key)
            return None if value is None else int(value)

        return cls(
            number("save_interval"),
            number("start_step"),
            number("end_step"),
            tuple(int(step) for step in (found("save_steps") or "").split(",") if step.strip()),
        )

    @classmethod
    def of_any_mode(cls, hook: Mapping[str, str], collection: Mapping[str, str]) -> bool:
        """Return whether a collection is saved at all, in any mode.

        Args:
            hook: Checked parameters of the hook.
            collection: Checked parameters of the collection.
        """
        return any(cls.of(hook, collection, mode).is_any for mode in MODES)

    @property
    def is_any(self) -> bool:
        """Whether any step is saved: a listed step, or a multiple of the interval in bounds."""
        return self.is_any_of(0, math.inf)

    def most(self, interval: int) -> float:
        """Return the maximum number of saved steps; infinite without an end.

        Args:
            interval: Interval to use if none is set.
        """
        if self.end is None:
            return math.inf
        first = -(-(self.start or 0) // interval) * interval
        return len(self.listed) + max(0, -(-(self.end - first) // interval))

    def is_any_of(self, first: int, end: float) -> bool:
        """Return whether any step of a range is saved; without an interval, any step may be.

        Args:
            first: First step of the range.
            end: First step after the range.
        """
        if any(first <= step < end for step in self.listed):
            return True
        interval = self.interval or 1  # only the framework's hook knows its default
        begin = max(first, self.start or 0)
        saved = -(-begin // interval) * interval
        return saved < min(end, math.inf if self.end is None else self.end)
