"""The `PYTHONPATH` of processes that tests start in other folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["PYTHON_PATH"]

_ROOT: Final = Path(__file__).resolve().parents[1]
PYTHON_PATH: Final = os.pathsep.join(
    part for part in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if part
)
"""The checkout, and what conftest.py lets every process begin with."""
