"""Measures the size of a deployment's layer, and the import time of its evaluators."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

__all__ = ["ImportTimeError", "import_time_s", "layer_size", "summary"]

ROOT = Path(__file__).resolve().parent.parent
HANDLER = "lambdas.evaluate_rule.handler"
MEASURE = f"""
import time
began = time.perf_counter()
import {HANDLER}
print(time.perf_counter() - began)
"""
REPEATS = 3
TIMEOUT_S = 120
LARGEST_UNZIPPED_MIB = 250
MIB = 2**20


class ImportTimeError(RuntimeError):
    """The evaluator cannot be imported; the message says why."""


def layer_size(folder: Path) -> tuple[int, int]:
    """Return the size of a layer's files, and the approximate size of its archive, in bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in files]
    return sum(map(len, contents)), sum(len(zlib.compress(data)) for data in contents)


def import_time_s() -> float:
    """Return this interpreter's import time of an evaluator, in seconds: the best of three.

    Lambda with 512 MB takes a few times as long.

    Raises:
        ImportTimeError: It cannot be imported.
    """
    times = []
    for _ in range(REPEATS):
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", MEASURE],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        if done.returncode != 0:
            raise ImportTimeError(f"{HANDLER} cannot be imported:\n{done.stderr.strip()}")
        times.append(float(done.stdout))
    return min(times)


def summary(layer: Path) -> str:
    """Return both as one line."""
    size, packed = layer_size(layer)
    return (
        f"layer {size / MIB:.1f} MiB of {LARGEST_UNZIPPED_MIB} ({packed / MIB:.1f} MiB zipped), "
        f"import of an evaluator {import_time_s():.2f} s here"
    )
