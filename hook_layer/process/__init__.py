"""The process that trains: its end, its signals, its locks and its log."""

from __future__ import annotations
