"""The way of one S3 event through an evaluator stays as short as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mode", ["per_rule", "grouped"])
def test_an_event_goes_through_no_more_files_than_before(mode: str) -> None:
    command = [sys.executable, "-m", "tools.event_trace", mode]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{done.stdout.splitlines()[-1:]} {done.stderr}"
