"""What only TensorFlow has."""

from __future__ import annotations

import keras

if keras.backend.backend() != "tensorflow":
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str:
    return f"keras: {keras.__version__} on {keras.backend.backend()}"
