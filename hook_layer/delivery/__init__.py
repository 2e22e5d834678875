"""Stores captured steps: writer threads, spool, retries and counters."""

from __future__ import annotations
