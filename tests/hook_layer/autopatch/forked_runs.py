"""Runs scripts in forks of a process that has imported the framework: the import takes longest.

Run as a program, this file is that process. It imports no module of Stepwatch before it forks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

__all__ = ["Done", "ForkedRuns"]

TIMEOUT_S = 120


@dataclass(frozen=True)
class Done:
    """How a script ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class ForkedRuns:
    """Runs scripts in forks of one process.

    Args:
        framework: What that process imports.
        folder: Where the scripts are, and where they run.
        scratch: Where their output goes.
    """

    def __init__(self, framework: str, folder: Path, scratch: Path) -> None:
        self._scratch = scratch
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), framework, str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"command": command, "environment": dict(environment)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        printed = ((self._scratch / name).read_text() for name in ("stdout", "stderr"))
        return Done(status, *printed)

    def close(self) -> None:
        self._process.communicate(timeout=60)


def _main(framework: str, scratch: str) -> None:
    importlib.import_module(framework)
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            _run(**json.loads(line), scratch=Path(scratch))
            return
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(command: list[str], environment: dict[str, str], scratch: Path) -> None:
    """Run a script as `python SCRIPT` does: its end, or its error, ends this process."""
    signal.alarm(TIMEOUT_S)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(environment)
    script = Path(command[0]).resolve()
    sys.argv[:] = command
    sys.path[:1] = [str(script.parent), *environment["PYTHONPATH"].split(os.pathsep)]
    sys.modules.pop("sitecustomize", None)
    importlib.import_module("sitecustomize")
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = command[0]
    exec(compile(script.read_text(), command[0], "exec"), main.__dict__)


if __name__ == "__main__":
    _main(*sys.argv[1:])
