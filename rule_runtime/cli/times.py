"""Times in tables: parsed, and as short texts."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

__all__ = ["age_text", "duration_text", "parsed_time"]

_UNITS: Final = (("min", 60), ("h", 60 * 60), ("days", 24 * 60 * 60))
_MIN_COUNT: Final = 2
"""A larger unit is used from this number of it, so that a duration is off by a third at most."""


def parsed_time(text: str | None) -> datetime | None:
    """Return a time of ISO 8601, in UTC if it says no zone; None for any other text."""
    try:
        time = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def duration_text(seconds: float) -> str:
    """Return a duration in its largest unit, such as `90 s` or `3 days`."""
    count, unit = max(int(seconds), 0), "s"
    for name, length in _UNITS:
        if seconds >= _MIN_COUNT * length:
            count, unit = int(seconds // length), name
    return f"{count} {unit}"


def age_text(time: datetime | None) -> str:
    """Return how long ago a time was; `unknown` without one."""
    if time is None:
        return "unknown"
    return duration_text((datetime.now(timezone.utc) - time).total_seconds())
