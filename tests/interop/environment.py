"""The environment of the original client, and how scripts are run there and here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hook_layer.format.paths import END_MARKER

__all__ = [
    "FRAMEWORKS_PYTHON",
    "MXNET_PYTHON",
    "OUR_PYTHON",
    "SMDEBUG_PYTHON",
    "SmdebugReader",
    "original_on_path",
    "run_scripts",
    "xgboost_by_its_name",
]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
OUR_PYTHON = Path(sys.executable)
SMDEBUG_PYTHON = ROOT / ".venv-interop" / "bin" / "python"
FRAMEWORKS_PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
MXNET_PYTHON = ROOT / ".venv-mxnet" / "bin" / "python"
TIMEOUT_S = 120
_OF_ORIGINAL = (
    *("smdebug", "google", "boto3", "botocore", "s3transfer", "jmespath", "dateutil"),
    *("six.py", "pyinstrument", "pyinstrument_cext*", "pandas", "pytz", "psutil"),
)
"""The original client and its requirements, without numpy."""


def run_scripts(*commands: Sequence[str | Path], path: Path | None = None) -> list[str]:
    """Run scripts of this folder at the same time, and return what they print.

    Args:
        commands: For each the Python, the original client's or ours, the name of the script, and
            its arguments.
        path: A folder to import from, too.
    """
    running = [started(*command, path=path) for command in commands]
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, outputs, strict=True):
        assert process.returncode == 0, errors[-4000:]
    return [output for output, _ in outputs]


def started(
    python: str | Path,
    script: str | Path,
    *arguments: str | Path,
    path: Path | None = None,
    errors: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    assert Path(python).exists(), f"there is no {python}; run `make setup-all`"
    own = [] if python == SMDEBUG_PYTHON else [ROOT]
    folders = [*own, *([path] if path else []), os.environ["PYTHONPATH"]]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0",
        "SMDEBUG_LOG_LEVEL": "error",
    }
    return subprocess.Popen(
        [str(python), str(HERE / script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
    )


class SmdebugReader:
    """The original's reader, in a process that opens one trial after the other."""

    def __init__(self) -> None:
        script = (SMDEBUG_PYTHON, "dump_trial.py", "smdebug.trials")
        self._process = started(*script, errors=subprocess.DEVNULL)

    def seen(self, trial: Path) -> dict[str, Any]:
        """Return what it says of a trial."""
        # It waits for ever for a trial that has no end, or does not exist.
        assert (trial / END_MARKER).exists(), f"{trial} has no end"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        patience = threading.Timer(TIMEOUT_S, self._process.kill)
        patience.start()
        try:
            print(trial, file=self._process.stdin, flush=True)
            line = next(filter(_is_json, self._process.stdout), None)
        finally:
            patience.cancel()
        assert line is not None, f"the original's reader ended, or read {trial} for too long"
        content: dict[str, Any] = json.loads(line)
        assert "failed" not in content, content["failed"]
        return content

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _is_json(line: str) -> bool:
    return line.startswith("{")


def original_on_path(folder: Path) -> Path:
    """Link the original client where an environment with an older numpy can import it.

    Returns:
        The folder to import from.
    """
    for pattern in _OF_ORIGINAL:
        for package in SMDEBUG_PYTHON.parents[1].glob(f"lib/*/site-packages/{pattern}"):
            (folder / package.name).symlink_to(package)
    return folder


def xgboost_by_its_name(folder: Path) -> Path:
    """Make `xgboost-cpu` known as `xgboost` too, whose version the original asks for.

    Returns:
        The folder to import from.
    """
    (installed,) = SMDEBUG_PYTHON.parents[1].glob("lib/*/site-packages/xgboost_cpu-*.dist-info")
    metadata = (installed / "METADATA").read_text().replace("Name: xgboost-cpu", "Name: xgboost")
    renamed = folder / installed.name.replace("xgboost_cpu", "xgboost")
    renamed.mkdir()
    (renamed / "METADATA").write_text(metadata)
    return folder
