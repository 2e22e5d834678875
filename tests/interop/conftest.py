"""Fixtures that run this folder's scripts with the original client and with ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.environment import SMDEBUG_PYTHON, last_json, run_script


@pytest.fixture(scope="session")
def run_smdebug() -> Callable[..., str]:
    """Run a script of this folder with the original client."""
    assert SMDEBUG_PYTHON.exists(), "run `make setup`: the original client is not installed"
    return lambda script, *arguments: run_script(SMDEBUG_PYTHON, script, *arguments)


@pytest.fixture(scope="session")
def seen_by_smdebug(run_smdebug: Callable[..., str]) -> Callable[[Path], dict[str, Any]]:
    """Return what the original's reader says of a trial."""
    return lambda path: last_json(run_smdebug("dump_trial.py", "smdebug.trials", str(path)))


@pytest.fixture(scope="session")
def seen_by_us() -> Callable[[Path], dict[str, Any]]:
    """Return what our reader says of a trial, to the same script."""
    python = Path(sys.executable)
    return lambda path: last_json(run_script(python, "dump_trial.py", "rule_runtime", str(path)))
