"""What may be imported where, and with how little the packages get by."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLDEST_PYTHON = ROOT / ".venv-oldest" / "bin" / "python"
WHERE_OLDEST = ["tests/hook_layer/format", "tests/rule_runtime/rules"]
HEAVY = {
    "boto3",
    "botocore",
    "torch",
    "matplotlib",
    "pandas",
    "scipy",
    "sklearn",
    "xgboost",
    "typer",
    "rich",
    "aws_cdk",
    "pydantic",
}


def run(
    python: Path | str, *arguments: str, limit_s: float = 300
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def brought_by(module: str) -> set[str]:
    """Return what is heavy of all that an import imports."""
    code = f"import {module}, sys, json; print(json.dumps(list(sys.modules)))"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    return HEAVY & {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("hook_layer", set()),
        ("hook_layer.core.hook", set()),
        ("hook_layer.storage", set()),
        ("rule_runtime", set()),
        ("stepwatch", set()),
        ("rule_runtime.engine.reconciler", set()),
        ("lambdas.contracts.events", set()),
        ("lambdas.evaluate_rule.handler", {"botocore"}),
        ("hook_layer.pytorch", {"torch"}),
    ],
)
def test_an_import_brings_nothing_heavy_along(module: str, allowed: set[str]) -> None:
    assert brought_by(module) == allowed


def test_the_hook_for_xgboost_brings_what_xgboost_brings() -> None:
    assert brought_by("hook_layer.xgboost") == brought_by("xgboost")
    assert "torch" not in brought_by("hook_layer.xgboost")


def test_the_hook_layer_works_with_the_oldest_numpy() -> None:
    assert OLDEST_PYTHON.exists(), "run `make setup`"
    code = "import numpy, hook_layer, hook_layer.core.hook, rule_runtime; print(numpy.__version__)"
    done = run(OLDEST_PYTHON, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1.23.5"
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *WHERE_OLDEST]
    arguments += ["-k", "not Contract and not documentation"]  # they take minutes
    arguments += ["-o", "faulthandler_timeout=200"]  # shows where a test hangs
    tests = run(OLDEST_PYTHON, *arguments, limit_s=1200)
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert " passed" in tests.stdout


def test_the_directions_are_kept() -> None:
    done = run(Path(sys.executable).parent / "lint-imports")
    assert done.returncode == 0, done.stdout
