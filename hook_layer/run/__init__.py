"""The run that a hook writes: its folder, its ranks, its session, and requests to stop it."""

from __future__ import annotations
