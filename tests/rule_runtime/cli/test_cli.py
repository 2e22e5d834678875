from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hook_layer.storage.local import LocalStore
from rule_runtime.cli.app import app
from rule_runtime.configuration.packs import PACKS
from rule_runtime.testing import TrialBuilder


@pytest.fixture
def trial(tmp_path: Path) -> TrialBuilder:
    return TrialBuilder(LocalStore(tmp_path / "run"))


def run(trial: TrialBuilder, *arguments: str) -> tuple[int, str]:
    path = str(trial.store.path)  # type: ignore[attr-defined]
    result = CliRunner().invoke(app, ["evaluate", path, *arguments])
    return result.exit_code, result.output


def test_no_issue(trial: TrialBuilder) -> None:
    trial.step(0, {"gradient/a": [1.0]})
    status, output = run(trial, "--rule", "VanishingGradient", "--rule", "ExplodingTensor")
    assert status == 0
    assert "NoIssuesFound" in output


def test_an_issue_outweighs_what_could_not_be_judged(trial: TrialBuilder) -> None:
    trial.step(500, {"gradient/a": np.float32([0.5])})
    status, output = run(
        trial,
        "--rule",
        "VanishingGradient:threshold=1.0",
        "--rule",
        "LossNotDecreasing:tensor_regex=a,b,num_steps=3",
        "--output",
        "json",
    )
    assert status == 1
    vanishing, loss = json.loads(output)
    assert vanishing["RuleEvaluationStatus"] == "IssuesFound"
    assert vanishing["StatusDetails"].startswith(
        "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient:threshold=1.0 at "
        "step 500 resulted in the condition being met\n"
    )
    assert vanishing["Evidence"]["value"] == 0.5
    assert loss["RuleEvaluationStatus"] == "Error"
    assert "3 steps or more before step 0" in loss["StatusDetails"]


def test_rules_that_do_not_apply_are_told_without_an_error(trial: TrialBuilder) -> None:
    trial.step(0, {"gradient/a_weight": [0.1, 0.2], "a_weight": [1.0, 2.0]})
    _, output = run(trial, "--pack", "recommended")
    assert "not evaluated" in output.replace("\n", " ")
    assert "Error" not in output
    assert "Insufficient" not in output


def test_nothing_to_judge(trial: TrialBuilder) -> None:
    status, output = run(trial, "--output", "json")
    assert status == 2
    verdicts = {v["RuleConfigurationName"]: v["RuleEvaluationStatus"] for v in json.loads(output)}
    assert set(verdicts) == set(PACKS["recommended"].rules())
    assert set(verdicts.values()) == {"Error"}


def test_a_pack_is_judged_by_those_of_its_rules_that_fit(trial: TrialBuilder) -> None:
    for step in range(5):
        trial.step(step, {"gradient/a_weight": [0.1, 0.2], "a_weight": [1.0 + step / 100, 2.0]})
    status, output = run(trial, "--pack", "recommended", "--output", "json")
    verdicts = {v["RuleConfigurationName"]: v for v in json.loads(output)}
    assert status == 0
    assert verdicts["NonFinite"]["RuleEvaluationStatus"] == "NoIssuesFound"
    assert verdicts["LossSpike"]["RuleEvaluationStatus"] == "Error"
    assert "no loss was saved" in verdicts["LossSpike"]["StatusDetails"]
    status, output = run(trial, "--pack", "recommended", "--rule", "LossSpike", "--output", "json")
    assert status == 2


def test_the_pack_may_be_chosen(trial: TrialBuilder) -> None:
    trial.step(0, {"gradient/a": [1e-9]})
    status, output = run(trial, "--pack", "original", "--output", "json")
    assert status == 1
    found = [v for v in json.loads(output) if v["RuleEvaluationStatus"] == "IssuesFound"]
    assert [v["RuleConfigurationName"] for v in found] == ["VanishingGradient"]
    status, output = run(trial, "--pack", "orginal")
    assert status == 2
    assert "there is no pack 'orginal'; did you mean 'original'?" in output


def test_the_default_pack_finds_what_it_should(trial: TrialBuilder) -> None:
    trial.step(0, {"CrossEntropyLoss_output_0": [np.nan]})
    status, output = run(trial)
    assert status == 1
    assert "NonFinite" in output


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("VanishingGradiend", "did you mean 'VanishingGradient'?"),
        ("VanishingGradient:treshold=1", "did you mean 'threshold'?"),
        ("VanishingGradient:threshold", "write parameters as NAME:key=value"),
    ],
)
def test_mistakes_are_told(trial: TrialBuilder, rule: str, message: str) -> None:
    status, output = run(trial, "--rule", rule)
    assert status == 2
    assert message in output


def test_rules_are_listed_with_their_parameters() -> None:
    result = CliRunner().invoke(app, ["rules"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "threshold = 1e-07" in result.output
    assert "LossNotDecreasing" in result.output


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['typer'] = None\nimport rule_runtime.cli; rule_runtime.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'stepwatch[cli]'" in done.stderr
