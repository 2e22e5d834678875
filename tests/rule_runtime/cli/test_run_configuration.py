"""What `stepwatch run` stores of its rules, so that they could be configured so again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rule_runtime.cli.evaluation import parse_rule
from rule_runtime.cli.run_configuration import rule_configurations
from rule_runtime.configuration.packs import PACKS
from rule_runtime.custom_rules.loader import load_custom_rule
from rule_runtime.engine.registry import create_rule

SCRIPT = Path(__file__).resolve().parent / "scripts" / "sick_script.py"
NATIVE = """
from rule_runtime import Rule
from rule_runtime.engine.outcome import Passed


class LossTooHigh(Rule):
    bound: float = 1.0
    names: tuple[str, ...] = ()

    def check(self, step, memory):
        return Passed()
"""
ORIGINAL = """
from smdebug.rules import Rule


class LossTooHigh(Rule):
    def __init__(self, base_trial, other_trials=None, bound: float = 1.0, settings=None):
        super().__init__(base_trial, other_trials=other_trials)
        self.bound = bound

    def invoke_at_step(self, step):
        return False
"""


def stored(text: str) -> dict[str, str]:
    """Return the parameters that are stored of a rule as it is named on the command line."""
    (member,) = rule_configurations([parse_rule(text)])
    assert member["RuleConfigurationName"] == text
    parameters: dict[str, str] = member["RuleParameters"]
    return parameters


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("vanishing_gradient", {}),
        ("VanishingGradient:threshold=1e-9", {"threshold": "1e-09"}),
        ("VanishingGradient:start_step=5,end_step=50", {"start_step": "5", "end_step": "50"}),
    ],
)
def test_a_built_in_rule(text: str, parameters: dict[str, str]) -> None:
    assert stored(text) == {"rule_to_invoke": "VanishingGradient", **parameters}


@pytest.mark.parametrize("source", [NATIVE, ORIGINAL])
def test_a_rule_of_ones_own(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r2.py"
    file.write_text(source)
    monkeypatch.chdir(tmp_path)
    parameters = stored("r2.py:LossTooHigh:bound=0.5,start_step=3")
    assert parameters == {
        "rule_to_invoke": "LossTooHigh",
        "source_s3_uri": str(file),
        "bound": "0.5",
        "start_step": "3",
    }
    again = load_custom_rule(file, "LossTooHigh", parameters, allowed=[tmp_path])
    assert rule_configurations([("again", again)])[0]["RuleParameters"] == parameters


def test_other_trials_of_a_rule_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "r3.py"
    file.write_text(ORIGINAL)
    parameters = stored(f"{file}:LossTooHigh:other_trial_0=/a/run,settings=x")
    assert parameters["other_trial_0"] == "/a/run"
    assert parameters["settings"] == "x"


@pytest.mark.parametrize("name", PACKS)
def test_the_rules_of_a_pack_come_back(name: str) -> None:
    rules = PACKS[name].rules()
    for member in rule_configurations(rules.items()):
        parameters = member["RuleParameters"]
        again = create_rule(parameters["rule_to_invoke"], parameters)
        assert again == rules[member["RuleConfigurationName"]]


def test_a_run_keeps_them_beside_its_tensors(tmp_path: Path) -> None:
    (tmp_path / "r2.py").write_text(NATIVE)
    names = ("r2.py:LossTooHigh:bound=0.5", "vanishing_gradient:threshold=1e-9")
    rules = [part for name in names for part in ("--rule", name)]
    command = ["run", *rules, "--out-dir", "out", "--", sys.executable, str(SCRIPT), "3"]
    stepwatch = Path(sys.executable).parent / "stepwatch"
    subprocess.run([stepwatch, *command], capture_output=True, check=False, cwd=tmp_path)
    job = json.loads((tmp_path / "out" / "run-1" / "job.json").read_text())
    reported = {
        each["RuleConfigurationName"]: each["RuleParameters"]
        for each in job["DebugRuleConfigurations"]
    }
    assert list(reported) == list(names)
    custom, built_in = reported.values()
    assert custom["source_s3_uri"] == str(tmp_path / "r2.py")
    assert (custom["rule_to_invoke"], custom["bound"]) == ("LossTooHigh", "0.5")
    assert built_in == {"rule_to_invoke": "VanishingGradient", "threshold": "1e-09"}
