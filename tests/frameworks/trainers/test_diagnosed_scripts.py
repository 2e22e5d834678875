"""The cause that `stepwatch run` prints for a script with one fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python_path import PYTHON_PATH

SCRIPTS = Path(__file__).resolve().parent / "scripts"


@pytest.mark.parametrize(
    ("script", "cause", "first"),
    [
        ("fine_tuning_script.py", "The learning rate is too high", ["first"]),
        ("unscaled_script.py", "Inputs or targets are not scaled", []),
    ],
)
def test_the_cause(tmp_path: Path, script: str, cause: str, first: list[str]) -> None:
    python = [sys.executable, str(SCRIPTS / script)]
    watch = [sys.executable, "-m", "stepwatch", "run", "--out-dir", "out", "--"]
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHON_PATH,
    }
    if first:
        subprocess.run([*python, *first], cwd=tmp_path, check=True, timeout=300)
    done = subprocess.run(
        [*watch, *python],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"{cause}: seen at step " in done.stdout.splitlines()[0]
