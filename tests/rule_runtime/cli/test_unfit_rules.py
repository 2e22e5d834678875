"""Rules for neural networks, of a run that boosted trees."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from tests.rule_runtime.cli.invoking import invoke, trial_in


def run_in(folder: Path, *, is_of_xgboost: bool) -> Path:
    trial = trial_in(folder)
    if is_of_xgboost:
        trial.collections(losses=("-",), average_shap=("^average_shap/",))
    else:
        trial.collections(losses=("-",))
    for step in range(3):
        trial.step(step, {"train-rmse": np.float64(1.0 - step / 10)}, mode=ModeKeys.GLOBAL)
    trial.end()
    return folder


@pytest.mark.parametrize("file", [None, "told.txt"])
def test_rules_for_networks_are_named_in_one_line(tmp_path: Path, file: str | None) -> None:
    run = run_in(tmp_path / "run", is_of_xgboost=True)
    given = ("-v",) if file is None else ("--output-file", tmp_path / file)
    _, reported = invoke("evaluate", run, "--pack", "recommended", *given)
    reported = reported if file is None else (tmp_path / file).read_text()
    words = " ".join(reported.split())
    assert words.count("no neural network was trained (") == 1
    assert "DeadOptimizer," in words.partition("no neural network was trained (")[2]
    assert "not evaluated: DeadOptimizer" not in words
    # What boosted trees are judged by, too, is told with what it lacks.
    for rule in ("OscillatingLoss", "GeneralisationGap", "LearningRateTooLow"):
        assert re.search(f"not evaluated(?: yet)?: {rule}: ", words)


def test_a_rule_that_is_named_is_reported_with_what_it_lacks(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", is_of_xgboost=True)
    named = ("--rule", "DeadOptimizer", "--pack", "recommended")
    assert "not evaluated: DeadOptimizer: " in invoke("evaluate", run, *named)[1]


def test_of_other_runs_all_reasons_are_reported(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", is_of_xgboost=False)
    reported = invoke("evaluate", run, "--pack", "recommended", "-v")[1]
    assert "not evaluated: DeadOptimizer: " in reported
    assert "no neural network" not in reported
