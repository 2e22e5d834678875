"""Continues an interrupted run: checkpoints, their state file, step numbers."""

from __future__ import annotations
