"""Healthy scripts without any line for Stepwatch, run by `stepwatch run`."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.detection.program import Program, Run

__all__ = ["script_program"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_FRAMEWORKS: Final = _ROOT / ".venv-frameworks" / "bin" / "python"
_IN_MAIN_ENVIRONMENT: Final = ("torch", "xgb")
_LIMIT_S: Final = 300
_STOPPED_BY_FINDING: Final = 1
"""Exit status of `stepwatch run` with findings."""


def script_program(path: Path) -> Program:
    """Return the program that runs a script.

    Args:
        path: The script. The environment of frameworks runs it unless its name begins with
            `torch` or `xgb`.
    """
    return partial(_train, path)


def _train(path: Path, run: Run) -> float:
    is_own = path.stem.startswith(_IN_MAIN_ENVIRONMENT)
    python = sys.executable if is_own else str(_FRAMEWORKS)
    session = run.folder.with_name("session")
    options = ["--stop=never", f"--out-dir={session}"]
    command = [str(Path(sys.executable).with_name("stepwatch")), "run", *options]
    ended = subprocess.run(
        [*command, "--", python, str(path), str(run.seed)],
        env=os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if ended.returncode not in (0, _STOPPED_BY_FINDING):
        raise RuntimeError(f"{path.name} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    (session / "run-1").rename(run.folder)
    return math.nan
