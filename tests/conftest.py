"""What holds for every test."""

from __future__ import annotations

import gc
import os

import pytest

# Tests run side by side, and start processes: each with threads of its own would only wait.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_configure(config: pytest.Config) -> None:
    """Let no property fail because the machine is busy."""
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("stepwatch", deadline=None)
        settings.load_profile("stepwatch")


def pytest_collection_finish() -> None:
    """Set aside what imported libraries hold: each garbage collection would look through it all."""
    gc.collect()
    gc.freeze()
