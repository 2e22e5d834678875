"""The format and the rules work with the oldest NumPy and Python that are allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.other_environment

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-oldest" / "bin" / "python"
TESTS = ("tests/hook_layer/format", "tests/rule_runtime/rules")
SELECTION = "not Contract and not documentation"  # contracts take minutes


def run(*arguments: str, limit_s: float) -> str:
    assert PYTHON.exists(), "run `make setup-all`"
    done = subprocess.run(
        [str(PYTHON), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    return done.stdout


def test_the_packages_are_imported_with_the_oldest_numpy() -> None:
    code = "import numpy, hook_layer, hook_layer.core.hook, rule_runtime; print(numpy.__version__)"
    assert run("-c", code, limit_s=300).strip() == "1.23.5"


def test_format_and_rules_pass_their_tests() -> None:
    options = ["-q", "-p", "no:cacheprovider", "-k", SELECTION, "-o", "faulthandler_timeout=200"]
    assert " passed" in run("-m", "pytest", *options, *TESTS, limit_s=1200)
