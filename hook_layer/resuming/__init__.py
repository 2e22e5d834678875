"""How a training that was interrupted continues: checkpoints, the state beside them, numbers."""

from __future__ import annotations
