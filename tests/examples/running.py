"""Running an example as its README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def example(name: str, *arguments: object) -> str:
    """Run an example and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
