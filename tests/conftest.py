"""What holds for every test."""

from __future__ import annotations

import gc
import os

# Tests run side by side, and start processes: each with threads of its own would only wait.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_collection_finish() -> None:
    """Set aside what imported libraries hold: each garbage collection would look through it all."""
    gc.collect()
    gc.freeze()
