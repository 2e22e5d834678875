"""`stepwatch evaluate` of TensorBoard's files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from tests.rule_runtime.cli.invoking import invoke, invoke_json, trial_in


@pytest.fixture
def board(tmp_path: Path) -> Path:
    for name, fault in (("sick", math.nan), ("healthy", 1.0)):
        with SummaryWriter(str(tmp_path / "board" / name)) as writer:
            writer.add_text("note", "a tensor that is no scalar")
            for step in range(60):
                writer.add_scalar("train/loss", 2.0 * 0.95**step, 5 * step)
                writer.add_scalar("reward", fault if step > 30 else 1.0, 5 * step)
                writer.add_scalar("train/spike", 50.0 if step == 40 else 1.0, 5 * step)
    return tmp_path / "board"


def test_each_folder_is_a_run_whose_scalars_are_evaluated(board: Path) -> None:
    status, verdicts = invoke_json("evaluate", board, "--rule", "NonFinite")
    assert status == 1
    found = {each["Run"]: each["RuleEvaluationStatus"] for each in verdicts}
    assert found == {"healthy": "NoIssuesFound", "sick": "IssuesFound"}


def test_losses_are_found_by_name_and_other_rules_say_what_they_need(board: Path) -> None:
    status, verdicts = invoke_json(
        "evaluate", board / "healthy", "--rule", "LossDiverging", "--rule", "VanishingGradient"
    )
    by_name = {each["RuleConfigurationName"]: each for each in verdicts}
    assert by_name["LossDiverging"]["RuleEvaluationStatus"] == "NoIssuesFound"
    assert "gradients" in by_name["VanishingGradient"]["StatusDetails"]
    assert status == 2


def test_a_folder_with_runs_of_stepwatch_is_not_taken_for_tensorboards(board: Path) -> None:
    trial_in(board.parent / "run-1").step(0, {"a_weight": [1.0]})
    assert invoke("evaluate", board.parent, "--rule", "NonFinite")[0] == 2


def test_a_folder_without_such_files_is_a_run_as_before(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    assert invoke("evaluate", tmp_path, "--rule", "NonFinite")[0] == 2
