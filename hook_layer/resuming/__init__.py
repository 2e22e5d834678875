"""How a training that was interrupted goes on: checkpoints, the state beside them, numbers."""

from __future__ import annotations
