"""Settings of the original client's reader, by their environment variables."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["event_file_retries", "incomplete_step_window", "training_end_delay"]

_TRAINING_END_DELAY: Final = "SMDEBUG_TRAINING_END_DELAY_REFRESH"
_INCOMPLETE_STEPS: Final = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"
_EVENT_FILE_RETRIES: Final = "SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT"


def training_end_delay() -> int:
    """Return how long files may still come after the end of the training, seconds.

    Raises:
        ValueError: If the variable is no number of 0 or more.
    """
    return _number(_TRAINING_END_DELAY, 1)


def incomplete_step_window() -> int:
    """Return for how many incomplete steps a reader waits, before it gives up half of them.

    Raises:
        ValueError: If the variable is no number of 0 or more.
    """
    return _number(_INCOMPLETE_STEPS, 1000)


def event_file_retries() -> int:
    """Return how often an event file is looked for again that an index file names.

    Raises:
        ValueError: If the variable is no number of 0 or more.
    """
    return _number(_EVENT_FILE_RETRIES, 100)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name}={text[:40]!r} must be a whole number of 0 or more")
    return int(text)
