"""How many rules had data, and the exit status of a run that saved too little for its rules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xgboost

from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import TORCH
from rule_runtime.cli.summary import coverage_line
from rule_runtime.reporting.coverage import Coverage, coverage_of
from rule_runtime.reporting.html_report import job_report
from rule_runtime.reporting.run_verdicts import RunVerdicts
from stepwatch import LocalStore, collections_for
from stepwatch.xgboost import Hook
from tests.rule_runtime.cli.invoking import invoke, trial_in

LINE = "rules that apply to PyTorch had data"
PACK = {each.name: (each.parameters.get("include_regex", "loss"),) for each in collections_for()}


def run_with(folder: Path, collections: dict[str, tuple[str, ...]]) -> Path:
    """Write a run whose hook was configured to save collections; its model is one layer."""
    trial = trial_in(folder)
    trial.collections(**collections)
    for step in range(3):
        names = ("fc.weight", "fc.bias", "gradient/fc.weight") if len(collections) > 1 else ()
        loss = np.float32(1.0 - step / 10)
        trial.step(step, {"loss": loss, **{name: np.ones(2) + step for name in names}})
    trial.end()
    return folder


def words_of(*arguments: object) -> tuple[int, str]:
    status, output = invoke(*arguments)
    return status, " ".join(output.split())


@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_run_whose_hook_saved_losses_only_is_not_green(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run = run_with(tmp_path / "run", {"losses": ("loss",)})
    status, words = words_of("evaluate", run, *options)
    assert status == 2
    assert LINE in words
    assert 'stepwatch.torch.Hook("runs/x")' in words
    assert 'include_collections=stepwatch.collections_for("recommended")' in words


def test_rules_without_data_do_not_count_if_the_hook_was_configured_for_them(
    tmp_path: Path,
) -> None:
    status, words = words_of("evaluate", run_with(tmp_path / "run", PACK))
    assert status == 0
    assert LINE in words
    assert "collections_for" not in words


def test_rules_for_networks_do_not_apply_to_boosted_trees(tmp_path: Path) -> None:
    collections = {"losses": ("rmse",), "metrics": ("rmse",), "average_shap": ("^average_shap/",)}
    trial = trial_in(tmp_path / "run")
    trial.collections(**collections)
    for step in range(3):
        trial.step(step, {"train-rmse": np.float64(1 - step / 10)}, mode=ModeKeys.GLOBAL)
    trial.end()
    _, words = words_of("evaluate", tmp_path / "run")
    assert "of 14 rules that apply to XGBoost had data" in words


def test_a_hook_that_saves_all_is_not_blamed_for_data_that_the_script_lacks(
    tmp_path: Path,
) -> None:
    inputs = np.random.default_rng(0).normal(size=(300, 5))
    data = xgboost.DMatrix(inputs, inputs[:, 0] > 0)
    run = tmp_path / "run"
    xgboost.train({"objective": "binary:logistic"}, data, 12, callbacks=[Hook(str(run))])
    status, words = words_of("evaluate", run)
    assert status == 0
    assert "rules that apply to XGBoost had data" in words
    assert "not configured" not in words


def test_of_several_runs_the_one_whose_hook_saved_too_little_is_named() -> None:
    names = ["A", "B", "C", "D", "E"]
    runs = [
        RunVerdicts("short", "short", {}, Coverage(TORCH, names, [])),
        RunVerdicts("blind", "blind", {}, Coverage(TORCH, names, names[:2], names[2:])),
    ]
    assert coverage_line(runs).startswith("blind: 2 of 5 rules")


def test_a_run_in_which_no_rule_decided_is_not_green(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", PACK)
    status, words = words_of("evaluate", run, "--rule", "VanishingGradient:patience=10")
    assert status == 2
    assert "not evaluated yet" in words


def test_an_issue_has_priority(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    trial.collections(losses=("loss",))
    trial.step(0, {"loss": np.float32(np.nan)})
    trial.end()
    status, words = words_of("evaluate", tmp_path / "run")
    assert status == 1
    assert LINE in words


def test_machine_readable_output_stays_whole(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", PACK)
    status, output = invoke("evaluate", run, "--output", "json")
    assert status == 0
    assert len(json.loads(output)) == 29


def test_a_report_says_it_too(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {"losses": ("loss",)})
    store = LocalStore(run)
    coverage = coverage_of(store, {"NonFinite": True, "VanishingGradient": False})
    assert str(coverage).startswith(f"1 of 2 {LINE}")
    states = {"RuleConfigurationName": "NonFinite", "RuleEvaluationStatus": "NoIssuesFound"}
    assert "1 of 1 rule that applies to PyTorch had data" in job_report(str(run), [states]).html


def test_half_of_the_rules_is_not_more_than_half() -> None:
    names = ["A", "B", "C", "D"]
    assert not Coverage(TORCH, names, names[:2], names[2:], ["gradients"]).is_blind
    blind = Coverage(TORCH, names, names[:1], names[1:], ["gradients"])
    assert blind.is_blind
    assert str(blind) == (
        "1 of 4 rules that apply to PyTorch had data; the hook was not configured to save that of "
        "3. Give it include_collections=['gradients']"
    )
