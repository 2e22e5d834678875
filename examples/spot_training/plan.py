"""Constants that the script and its check share."""

from __future__ import annotations

__all__ = ["NUM_STEPS", "SAVE_INTERVAL"]

NUM_STEPS = 300
SAVE_INTERVAL = 5
