"""The on-disk contract and its only owner: names, records, index, collections and job files.

The files are those of smdebug, in both directions, with additions that its reader ignores.
"""

from __future__ import annotations

__all__: list[str] = []
