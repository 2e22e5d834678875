"""`stepwatch run` of a script that trains no model, and only logs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests.rule_runtime.processes import completed

SCRIPT = Path(__file__).resolve().parent / "scripts" / "rewards_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
RULE = """
import stepwatch

class LowEntropy(stepwatch.Rule):
    \"\"\"Finds a policy that explores no more.\"\"\"

    collections = ("logged",)

    def check(self, step, memory):
        rows = step.tensors(regex="^scalar/entropy$")
        low = rows.smallest("mean")
        if low is None:
            return stepwatch.NotEvaluated("no entropy was logged")
        if low.value >= 0.01:
            return stepwatch.Passed()
        return stepwatch.IssueFound(f"the entropy is {low.value:.3g}")
"""


def test_a_reward_that_is_nan_is_found_and_stops_the_script(tmp_path: Path) -> None:
    done = watch(tmp_path, "--rule", "NonFinite")
    assert done.returncode == 1, done.stderr
    assert "trained to the end" not in done.stderr + done.stdout
    assert "stop requested by NonFinite" in done.stderr
    (verdict,) = json.loads(done.stdout)
    assert verdict["Evidence"]["tensor"] == "scalar/reward"


def test_a_custom_rule_evaluates_a_logged_scalar(tmp_path: Path) -> None:
    (tmp_path / "low_entropy.py").write_text(RULE)
    done = watch(tmp_path, "--rule", "low_entropy.py:LowEntropy", "--higher-is-better", "reward")
    assert done.returncode == 1, done.stderr
    assert "stop requested by low_entropy.py:LowEntropy" in done.stderr


def watch(folder: Path, *options: str) -> CompletedProcess[str]:
    command = [STEPWATCH, "run", "--output", "json", *options, "--", sys.executable, SCRIPT]
    return completed(command, cwd=folder, env={**os.environ})
