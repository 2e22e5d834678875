"""Runs a script under `stepwatch run` and reads the verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["ROOT", "WatchedRun", "watch_script"]

ROOT: Final = Path(__file__).resolve().parents[1]
_VERDICTS: Final = (0, 1)
"""Exit statuses of `stepwatch run` where rules judged: no issue, and an issue."""


class WatchedRun(NamedTuple):
    """What `stepwatch run` says of a script.

    Attributes:
        verdicts: One entry for each rule; none if no rule judged.
        failure: Exit status and output of a command without verdicts.
        num_bytes: Bytes of the session's folder.
    """

    verdicts: tuple[dict[str, Any], ...]
    failure: str
    num_bytes: int

    @property
    def issues(self) -> list[dict[str, Any]]:
        """The entries of rules that found an issue."""
        return [each for each in self.verdicts if each["RuleEvaluationStatus"] == "IssuesFound"]


def watch_script(
    environment: str,
    script: Sequence[str],
    *,
    options: Sequence[str] = (),
    variables: Mapping[str, str],
    root: Path = ROOT,
) -> WatchedRun:
    """Run a script in one thread and a folder of its own.

    Args:
        environment: Folder of the environment whose Python runs the script.
        script: Options of Python, the script and its arguments.
        options: Options of `stepwatch run`.
        variables: Environment variables of the script.
        root: Checkout whose code watches and judges.
    """
    binaries = ROOT / environment / "bin"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    env |= {"PYTHONPATH": str(root), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        verdicts, session = Path(folder) / "verdicts.json", Path(folder) / "run"
        command = [str(ROOT / ".venv/bin/stepwatch"), "run", "--output", "json", *options]
        command += ["--output-file", str(verdicts), "--out-dir", str(session), "--"]
        command += [str(binaries / "python"), *script]
        done = subprocess.run(
            command, check=False, cwd=folder, env=env, capture_output=True, text=True
        )
        if done.returncode not in _VERDICTS or not verdicts.exists():
            return WatchedRun((), f"exit status {done.returncode}: {done.stderr.strip()}", 0)
        entries = tuple(json.loads(verdicts.read_text(encoding="utf-8")))
        num_bytes = sum(path.stat().st_size for path in session.rglob("*") if path.is_file())
    return WatchedRun(entries, "", num_bytes)
