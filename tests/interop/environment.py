"""The environment of the original client, and how its scripts are run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["SMDEBUG_PYTHON", "last_json", "run_script"]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SMDEBUG_PYTHON = ROOT / ".venv-interop" / "bin" / "python"


def run_script(python: Path, script: str, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": "" if python == SMDEBUG_PYTHON else str(ROOT),
        "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0",
        "SMDEBUG_LOG_LEVEL": "error",
    }
    done = subprocess.run(
        [str(python), str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def last_json(output: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return content
