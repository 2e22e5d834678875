"""Keras on the backend that `KERAS_BACKEND` names, in one thread of computation."""

from __future__ import annotations

import importlib
import os

import keras
import pytest

os.environ.setdefault("SMDEBUG_LOG_LEVEL", "warning")
BACKEND = keras.backend.backend()
if BACKEND == "torch":
    importlib.import_module("torch").set_num_threads(1)
elif BACKEND == "tensorflow":
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    (cpu,) = tensorflow.config.list_physical_devices("CPU")
    two = [tensorflow.config.LogicalDeviceConfiguration()] * 2
    tensorflow.config.set_logical_device_configuration(cpu, two)


@pytest.fixture
def unpatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore, after the test, the methods that `watch_unchanged` patches."""
    patched: dict[type, tuple[str, ...]] = {
        keras.Model: ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "__call__")
    }
    if BACKEND == "tensorflow":
        patched[tensorflow.GradientTape] = ("__enter__", "__exit__", "gradient")
    for owner, names in patched.items():
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
