"""Axes of charts: positions of numbers and tick labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Axis", "number_text"]

_MAX_DECADES: Final = 6
_NICE: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_SMALLEST: Final = 1e-300
_PRECISE: Final = 1e-9


@dataclass(frozen=True)
class Axis:
    """An axis between two bounds, with its tick labels.

    On a logarithmic axis, equal ratios have equal lengths.
    """

    low: float
    high: float
    is_log: bool
    ticks: tuple[float, ...]

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        *,
        is_log: bool = False,
        max_ticks: int = 5,
        is_tight: bool = False,
    ) -> Axis:
        """Return an axis that shows all given finite numbers; there may be none.

        A logarithmic axis shows only positive numbers. A tight axis ends at the extreme numbers
        instead of at ticks.
        """
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if is_log:
            return _log_axis(max(low, _SMALLEST), max(high, _SMALLEST))
        if not math.isfinite(high - low):
            low, high = low / 4, high / 4  # the difference of extreme numbers overflows a float
        if high - low <= _PRECISE * max(abs(low), abs(high)):
            spread = abs(high) * 0.1 or 1.0
            low, high = (low, low + spread) if is_tight else (low - spread, high + spread)
        step = _nice_step((high - low) / max_ticks)
        first, last = math.ceil(low / step - _PRECISE), math.floor(high / step + _PRECISE)
        if not is_tight:
            first, last = math.floor(low / step + _PRECISE), math.ceil(high / step - _PRECISE)
            low, high = first * step, last * step
        ticks = tuple(n * step for n in range(first, last + 1))
        return cls(low, high, is_log=False, ticks=ticks)

    def share(self, value: float) -> float:
        """Return the position of a number, from 0 at the lower bound to 1 at the upper one."""
        if self.is_log:
            inside = min(max(value, self.low), self.high)
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def number_text(value: float) -> str:
    """Return a number with four digits for axes and sentences."""
    if value == 0:
        return "0"
    if value == int(value) and abs(value) < 1e4:  # noqa: PLR2004 - four digits are short
        return str(int(value))
    size = abs(value)
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        short = value / limit
        if size >= limit and size < 1e12 and abs(short * 10 - round(short * 10)) < _PRECISE:  # noqa: PLR2004 - no letter is known to all behind G
            return f"{short:g}{letter}"
    text = f"{value:.4g}"
    mantissa, has_exponent, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if has_exponent else text


def _log_axis(low: float, high: float) -> Axis:
    bottom, top = math.floor(math.log10(low) + _PRECISE), math.ceil(math.log10(high) - _PRECISE)
    top = max(top, bottom + 1)
    each = math.ceil((top - bottom) / _MAX_DECADES)
    ticks = tuple(10.0**decade for decade in range(bottom, top + 1, each))
    return Axis(10.0**bottom, 10.0**top, is_log=True, ticks=ticks)


def _nice_step(wanted: float) -> float:
    size = 10.0 ** math.floor(math.log10(wanted))
    return next(nice * size for nice in _NICE if nice * size >= wanted * (1 - _PRECISE))
