"""Scripts as they run without us, each in a fork of one process: it has imported the frameworks.

Run as a module it is that process. It knows nothing of ours.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Done", "PlainRuns"]


@dataclass(frozen=True)
class Done:
    """How a script ended, and what it printed."""

    returncode: int
    stdout: str


class PlainRuns:
    """The process that forks; `folder` is where the scripts are, and where they run."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._printed = scratch / "printed.txt"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(self._printed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={key: value for key, value in os.environ.items() if "CONFIG" not in key},
        )

    def __call__(self, command: list[str]) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return Done(status, self._printed.read_text())

    def close(self) -> None:
        self._process.communicate(timeout=60)


def _run(command: list[str], printed: str) -> None:
    file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, sys.stdout.fileno())
    sys.argv[:] = command
    sys.path[0] = str(Path(command[0]).resolve().parent)
    status = 0
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        status = int(end.code or 0)
    sys.stdout.flush()
    os._exit(status)  # to take down what was imported would take longer than the script


def _main(printed: str) -> None:
    import torch._dynamo
    import xgboost

    frameworks: Any = torch, xgboost
    assert all(frameworks)
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            sys.stdin.close()
            _run(json.loads(line), printed)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
