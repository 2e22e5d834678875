"""Keras on the backend that `KERAS_BACKEND` names, in one thread of computation."""

from __future__ import annotations

import importlib
import os

import keras

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
