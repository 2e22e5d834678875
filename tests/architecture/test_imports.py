"""Allowed imports, and the third-party packages that they load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
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


def test_the_directions_are_kept() -> None:
    done = run(Path(sys.executable).parent / "lint-imports")
    assert done.returncode == 0, done.stdout
