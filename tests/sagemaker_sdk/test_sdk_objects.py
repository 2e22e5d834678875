"""Objects of the real SageMaker SDK, 2.x and 3.x, make the same JSON through ours."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.python_path import PYTHON_PATH

pytestmark = pytest.mark.other_environment

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).resolve().parent / "request_script.py"
VERSIONS = ("2", "3")


@cache
def said_in(version: str) -> Any:
    python = ROOT / f".venv-sagemaker{version}" / "bin" / "python"
    assert python.exists(), f"no SageMaker SDK {version}.x: run `make setup-all`"
    done = subprocess.run(
        [str(python), str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "PYTHONPATH": PYTHON_PATH,
            "AWS_DEFAULT_REGION": "eu-west-1",
            "PYTHONWARNINGS": "ignore",
            "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "least"), [("rules", 24), ("hooks", 4)])
def test_the_json_is_the_same_to_the_byte(version: str, kind: str, least: int) -> None:
    pairs = said_in(version)[kind]
    assert len(pairs) >= least
    for name, (theirs, taken, written) in pairs.items():
        assert taken == theirs, name
        assert written == theirs, name


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_taken_inside_ours(version: str) -> None:
    pairs = said_in(version)["inside"]
    assert len(pairs) == 6
    for name, (theirs_inside, ours_inside) in pairs.items():
        assert theirs_inside == ours_inside, name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_variable_of_a_pipeline_is_refused_with_its_reason(version: str) -> None:
    assert "give the value instead of a pipeline variable" in said_in(version)["variable"]


@pytest.mark.parametrize("version", VERSIONS)
def test_actions_that_the_sdk_leaves_out_are_reported(version: str) -> None:
    (message,) = said_in(version)["lost"]
    assert "Overfit" in message
    assert "action_json" in message


def test_the_versions_are_different() -> None:
    assert set(said_in("2")["rules"]) == set(said_in("3")["rules"])
