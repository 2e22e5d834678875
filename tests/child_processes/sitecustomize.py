"""Run by Python when it starts, because conftest.py puts this folder in its `PYTHONPATH`.

Many tests start a process that imports torch. A third of its time went into garbage collections:
while it imports, and when it ends. Nothing of what a process does depends on them.
"""

from __future__ import annotations

import atexit
import gc

gc.set_threshold(50_000, 10, 10)
atexit.register(gc.freeze)  # runs behind all others: the system takes back what is left
