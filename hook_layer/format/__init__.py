"""The file format: names, records, index, collections and job files.

Files are compatible with smdebug in both directions; its reader ignores the additions.
"""

from __future__ import annotations

__all__: list[str] = []
