"""Run one script as its user would, and read what the rules of the pack say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Outcome", "Script", "outcome_of", "scripts"]

ROOT: Final = Path(__file__).resolve().parents[2]
_SCRIPTS: Final = Path(__file__).resolve().parent / "scripts"
_FRAMEWORKS: Final = ROOT / ".venv-frameworks" / "bin" / "python"
_OWN: Final = ("torch", "xgb")
_LIMIT_S: Final = 300
_LAST_LINES: Final = 15


@dataclass(frozen=True)
class Script:
    """A training.

    Attributes:
        path: Its file.
    """

    path: Path

    @property
    def name(self) -> str:
        """What it is called."""
        return self.path.stem

    @property
    def python(self) -> Path:
        """The interpreter that has its framework."""
        is_own = self.name.startswith(_OWN)
        return Path(sys.executable) if is_own else _FRAMEWORKS

    @property
    def about(self) -> str:
        """What it trains: the first sentence of the file."""
        text = self.path.read_text().split('"""')[1]
        return " ".join(text.split()).partition(". ")[0].rstrip(".")


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        script: What was run.
        seed: With which seed.
        findings: Details by rule that found something.
        judged: Rules that could judge the run.
        rules: Rules in the pack.
        took_s: Wall time in seconds, rules included.
        failure: Why the run says nothing; empty: it ended well.
    """

    script: Script
    seed: int
    findings: dict[str, str]
    judged: int
    rules: int
    took_s: float
    failure: str = ""


def scripts() -> list[Script]:
    """Return all scripts by name."""
    return [Script(path) for path in sorted(_SCRIPTS.glob("*.py"))]


def outcome_of(script: Script, seed: int, save_interval: int) -> Outcome:
    """Run a script to its end under the pack that `stepwatch run` has by default.

    Args:
        script: What to run.
        seed: Its argument.
        save_interval: Steps between two that are saved.

    Returns:
        What the rules said. A run that failed is told by `failure`.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stepwatch-tutorial-") as folder:
        told = Path(folder) / "outcomes.json"
        ended = _run(script, seed, Path(folder) / "tensors", told, save_interval)
        took_s = time.monotonic() - began
        if not told.exists() or ended.returncode not in (0, 1):
            said = "\n".join((ended.stdout + ended.stderr).splitlines()[-_LAST_LINES:])
            failure = f"exit status {ended.returncode}: {said}"
            return Outcome(script, seed, {}, 0, 0, took_s, failure)
        outcomes: list[dict[str, Any]] = json.loads(told.read_text())
    found = {
        each["RuleConfigurationName"]: each["StatusDetails"]
        for each in outcomes
        if each["RuleEvaluationStatus"] == "IssuesFound"
    }
    judged = sum(bool(each["Counts"]["evaluated"]) for each in outcomes)
    return Outcome(script, seed, found, judged, len(outcomes), took_s)


def _run(
    script: Script, seed: int, tensors: Path, told: Path, save_interval: int
) -> subprocess.CompletedProcess[str]:
    options = [f"--save-interval={save_interval}", "--stop=never", f"--out-dir={tensors}"]
    options += ["--output=json", f"--output-file={told}"]
    command = [str(script.python), str(script.path), str(seed)]
    return subprocess.run(
        [Path(sys.executable).with_name("stepwatch"), "run", *options, "--", *command],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
