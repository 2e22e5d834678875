"""What `run` and `evaluate` print of many rules: a summary that fits on a terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from hook_layer.storage.local import LocalStore
from tests.rule_runtime.cli.invoking import invoke, trial_in

MAX_LINES = 15


def train(folder: Path, *, is_sick: bool) -> None:
    trial = trial_in(folder)
    trial.collections(losses=("loss",))
    for step in range(3):
        trial.step(step, {"loss": np.float32(np.nan if is_sick else 1.0 - step / 10)})
    trial.end()


@pytest.mark.parametrize("is_sick", [True, False])
def test_a_run_is_summarised_in_a_few_lines(tmp_path: Path, *, is_sick: bool) -> None:
    train(tmp_path / "run", is_sick=is_sick)
    status, output = invoke("evaluate", tmp_path / "run", "--pack", "recommended")
    assert status == (1 if is_sick else 2)  # the run has losses only
    assert "5 of 29 rules that apply to PyTorch had data" in output or is_sick
    assert ("NonFinite at step 0: loss: " in output) == is_sick
    assert "found no issue" in output
    assert "were not evaluated; `-v` shows why" in output
    assert "not evaluated:" not in output
    assert len(output.splitlines()) <= MAX_LINES


def test_a_session_of_many_runs_fits_too(tmp_path: Path) -> None:
    names = [f"run-{number}" for number in range(1, 33)]
    runs = tuple(SessionRun(name, "", name, "2026-01-01T00:00:00", 1) for name in names)
    session = SessionFile(("python",), "/", "2026-01-01T00:00:00", runs)
    LocalStore(tmp_path).put(SESSION_FILE, session.encode())
    for number, name in enumerate(names):
        train(tmp_path / name, is_sick=number % 2 == 0)
    status, output = invoke("evaluate", tmp_path, "--pack", "recommended")
    assert status == 1
    assert "run-1: A number is not finite: seen at step 0 in loss. Change: " in output
    assert "... and 5 more; `-v` shows them" in output
    assert "16 runs of 32 without a finding" in output
    assert len(output.splitlines()) <= MAX_LINES
    whole = invoke("evaluate", tmp_path, "--pack", "recommended", "-v")[1]
    assert whole.count("not evaluated: DeadRelu") == len(names)


def test_a_run_that_no_rule_could_judge_says_why(tmp_path: Path) -> None:
    trial = trial_in(tmp_path)
    trial.step(0, {"something": [1.0]})
    trial.end()
    named = "TreeDepth DeadRelu Confusion ClassImbalance SaturatedActivation NLPSequenceRatio"
    rules = [each for name in named.split() for each in ("--rule", name)]
    words = " ".join(invoke("evaluate", tmp_path, *rules)[1].split())
    assert "not evaluated: DeadRelu: no output of a ReLU layer was saved" in words


@pytest.mark.parametrize("options", [(), ("-v",)])
def test_advice_is_shown_and_is_no_finding(tmp_path: Path, options: tuple[str, ...]) -> None:
    trial, rows = trial_in(tmp_path), 100 * np.random.default_rng(0).normal(0, 1, (16, 4))
    trial.collections(losses=("Loss_output_0$",))
    for step in range(4):
        tensors = {"Net_fc.weight": np.ones((1, 4)), "Net_input_0": rows}
        trial.step(step, {**tensors, "MSELoss_output_0": np.float64(1 - step / 10)})
    trial.end()
    _, output = invoke("evaluate", tmp_path, "--pack", "recommended", *options)
    assert "advice of InputStatistics: Net_input_0: has a root mean square" in output


@pytest.mark.parametrize("form", ["", "json", "junit", "sarif"])
def test_a_rule_that_needs_more_steps_is_no_error(tmp_path: Path, form: str) -> None:
    train(tmp_path, is_sick=False)
    arguments = ("--output", form) if form else ()
    status, output = invoke(
        "evaluate", tmp_path, "--rule", "LossSpike", "--rule", "NonFinite", *arguments
    )
    assert status == 0
    words = " ".join(output.split())
    assert "needs 8 losses, had 3" in words
    assert form in ("json", "") or "not evaluated yet: needs 8 losses, had 3" in words
    assert form or "LossSpike │ not evaluated yet │" in words
