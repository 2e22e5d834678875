"""`stepwatch evaluate` for machines: JUnit's XML and SARIF."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hook_layer.storage.local import LocalStore
from rule_runtime.trial.step_index import list_index_files
from tests.rule_runtime.cli.invoking import invoke, trial_in
from tests.rule_runtime.processes import completed

RULES = ("--rule", "vanishing_gradient", "--rule", "NonFinite", "--rule", "Overfit")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    trial_in(folder).step(500, {"gradient/a\x07<&>": np.float32([1e-9]), "a_weight": [1.0]})
    return folder


def test_junit_has_a_test_for_each_rule(run: Path) -> None:
    status, output = invoke("evaluate", run, *RULES, "--output", "junit")
    assert status == 1
    (suite,) = ET.fromstring(output)
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    found, passed, lacking = suite.findall("testcase")
    shown = {each.get("name"): str(each.get("value")) for each in suite.iter("property")}
    assert shown["diagnosis"].startswith(
        "Gradients vanish on the way to the first layers: seen at "
    )
    assert shown["change"].startswith("Use ReLU or GELU")
    assert (found.get("name"), found[0].tag) == ("vanishing_gradient", "failure")
    assert "gradient/a\N{REPLACEMENT CHARACTER}<&>: mean(|g|) 1e-09" in str(found[0].get("message"))
    assert "at step 500 resulted in the condition being met" in str(found[0].text)
    assert passed[0].tag == "system-out"
    assert lacking[0].tag == "error"
    assert "no loss was saved" in str(lacking[0].get("message"))


def test_what_fails_a_build_is_an_error_and_what_does_not_is_skipped(tmp_path: Path) -> None:
    trial_in(tmp_path).step(0, {"gradient/a": [1.0], "a_weight": [1.0]})
    status, output = invoke("evaluate", tmp_path, "--output", "junit")
    (suite,) = ET.fromstring(output)
    assert (status, suite.get("errors")) == (0, "0")
    assert suite.get("skipped") != "0"
    status, output = invoke("evaluate", tmp_path, "--rule", "LossSpike", "--output", "junit")
    (suite,) = ET.fromstring(output)
    assert (status, suite.get("errors"), suite.get("skipped")) == (2, "1", "0")
    _, output = invoke("evaluate", tmp_path, "--rule", "LossSpike", "--output", "sarif")
    (scan,) = json.loads(output)["runs"]
    assert "error" in {n["level"] for n in scan["invocations"][0]["toolExecutionNotifications"]}


def test_junit_tells_an_error_from_a_rule_with_nothing_to_judge(run: Path, tmp_path: Path) -> None:
    rule = tmp_path / "mine.py"
    rule.write_text(
        "from rule_runtime import Rule\n"
        "class Mine(Rule):\n"
        '    """Is broken."""\n'
        "    def check(self, step, memory):\n"
        "        return 1 / 0\n"
    )
    status, output = invoke("evaluate", run, "--rule", f"{rule}:Mine", "--output", "junit")
    assert status == 2
    reported, _, report = output.partition("\n")  # the first line is on standard error
    assert reported.startswith("stepwatch: Mine failed at step 500: ZeroDivisionError")
    ((test,),) = ET.fromstring(report)
    assert test[0].tag == "error"
    assert "ZeroDivisionError" in str(test[0].get("message"))


def test_sarif_names_rule_tensor_and_an_index_file_that_exists(run: Path) -> None:
    status, output = invoke("evaluate", run, *RULES, "--output", "sarif")
    assert status == 1
    log = json.loads(output)
    (scan,) = log["runs"]
    assert log["version"] == "2.1.0"
    rules = scan["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["vanishing_gradient", "NonFinite", "Overfit"]
    (result,) = scan["results"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "vanishing_gradient"
    assert result["properties"]["step"] == 500
    assert scan["properties"]["diagnosis"]["Cause"] == "vanishing_gradient"
    (location,) = result["locations"]
    place = location["physicalLocation"]["artifactLocation"]
    root = scan["originalUriBaseIds"][place["uriBaseId"]]["uri"]
    assert root == f"{run.as_uri()}/"
    ((key, _),) = list_index_files(LocalStore(run))
    assert place["uri"] == key
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "gradient/a\x07<&>"
    (notice,) = scan["invocations"][0]["toolExecutionNotifications"]
    assert (notice["level"], notice["associatedRule"]["id"]) == ("error", "Overfit")


@pytest.mark.parametrize("form", ["table", "json", "junit", "sarif"])
def test_verdicts_go_to_a_file(run: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / "verdicts"
    status, output = invoke("evaluate", run, *RULES, "--output", form, "--output-file", file)
    assert (status, output) == (1, "")
    assert "vanishing_gradient" in file.read_text()


def test_findings_of_a_cause_point_at_the_line_to_change(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parent / "scripts" / "sick_script.py"
    source = script.read_text().splitlines()
    options = ("--stop", "never", "--out-dir", "out")
    command = [sys.executable, "-m", "stepwatch", "run", *options, "--", sys.executable, script]
    completed([*map(str, command), "30"], cwd=tmp_path)
    _, output = invoke("evaluate", tmp_path / "out", "--output", "sarif")
    (scan,) = json.loads(output)["runs"]
    assert scan["properties"]["diagnosis"]["Cause"] == "vanishing_gradient"
    by_rule = {
        result["ruleId"]: result["locations"][0]["physicalLocation"] for result in scan["results"]
    }
    place = by_rule["VanishingGradient"]
    assert place["artifactLocation"] == {"uri": script.as_uri()}
    assert "nn.Linear(" in source[place["region"]["startLine"] - 1]
    line = f"{script}:{place['region']['startLine']}"
    assert scan["properties"]["diagnosis"]["Line"] == line
