"""Processes that tests start."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["completed"]


def completed(
    command: Sequence[str | Path], *, check: bool = False, timeout: float = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its status and what it prints."""
    return subprocess.run(
        command, capture_output=True, text=True, check=check, timeout=timeout, **options
    )
