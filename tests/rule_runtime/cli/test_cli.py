from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hook_layer.install_hint import install_hint
from hook_layer.storage.local import LocalStore
from rule_runtime.cli.app import app
from rule_runtime.engine.outcome import Outcome
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import Memory
from rule_runtime.rules.non_finite import NonFinite
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.processes import completed


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
    assert loss["StatusDetails"].endswith(" yet: needs 3 TRAIN steps, had 0")


def test_rules_that_do_not_apply_are_told_without_an_error(trial: TrialBuilder) -> None:
    trial.step(0, {"gradient/a_weight": [0.1, 0.2], "a_weight": [1.0, 2.0]})
    _, output = run(trial, "--pack", "recommended", "-v")
    assert "not evaluated" in output.replace("\n", " ")
    assert "Error" not in output
    assert "Insufficient" not in output


def test_of_many_rules_only_those_that_found_something_have_a_row(trial: TrialBuilder) -> None:
    trial.step(0, {"gradient/a_weight": [0.1, np.nan], "a_weight": [1.0, 2.0]})
    status, output = run(trial, "--pack", "recommended", "--verbose")
    assert status == 1
    rows = [line for line in output.splitlines() if line.startswith("│") and line[2].isupper()]
    assert [row.split()[1] for row in rows] == ["NonFinite"]
    words = " ".join(output.split())
    assert "not evaluated yet: DeadOptimizer: needs 2 saved steps, had 1" in words
    assert "not evaluated: DeadRelu: no output of a ReLU layer was saved" in words


@pytest.mark.parametrize("place", ["missing", "empty", "file"])
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_place_without_a_run_is_reported_in_a_line(
    tmp_path: Path, place: str, output: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path / place), "--output", output])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "holds no saved step of a run" in result.stderr
    assert "Gradient" not in result.output


def test_a_damaged_index_file_is_reported(trial: TrialBuilder) -> None:
    trial.step(0, {"gradient/a": [1.0]})
    key = trial.step(1, {"gradient/a": [1.0]})
    trial.step(2, {"gradient/a": [1.0]})
    trial.store.put(key, b"{")
    trial.end()
    status, output = run(trial, "--rule", "VanishingGradient")
    assert status == 0
    assert f"1 index file damaged and ignored: {key}" in " ".join(output.split())


def test_nothing_to_judge(trial: TrialBuilder) -> None:
    trial.step(0, {"a": [1.0]})
    status, output = run(trial, "--rule", "LossSpike", "--output", "json")
    assert status == 2
    assert [v["RuleEvaluationStatus"] for v in json.loads(output)] == ["Error"]


def test_a_rule_of_a_pack_that_fails_is_no_success(
    trial: TrialBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: NonFinite, step: StepView, memory: Memory) -> Outcome:
        raise RuntimeError("broken")

    monkeypatch.setattr(NonFinite, "check", fail)
    trial.step(0, {"gradient/a_weight": [0.1, 0.2], "a_weight": [1.0, 2.0]})
    status, output = run(trial, "--pack", "recommended")
    assert status == 2
    assert "Error" in output


def test_users_are_told_of_defaults_that_they_must_know(trial: TrialBuilder) -> None:
    trial.step(0, {"CrossEntropyLoss_output_0": [1.0]})
    path = str(trial.store.path)  # type: ignore[attr-defined]

    def reported(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["evaluate", path, *arguments, "--output", "json"])
        assert json.loads(result.stdout)
        return result.stderr

    caution = "LossNotDecreasing: with its defaults it compares"
    assert reported("--rule", "loss_not_decreasing").count(caution) == 1
    assert reported("--pack", "original", "--rule", "loss_not_decreasing").count(caution) == 1
    assert caution not in reported("--rule", "loss_not_decreasing:num_steps=500")
    assert caution not in reported()
    assert reported("--rule", "loss_not_decreasing:start_step=5").count(caution) == 1


def test_an_unforeseen_error_has_a_status_of_its_own() -> None:
    code = (
        "import sys; sys.argv[1:] = ['rules']\n"
        "from rule_runtime.cli import main, rules\n"
        "rules.available_rules = lambda: 1 / 0\n"
        "main()"
    )
    done = completed([sys.executable, "-c", code])
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr
    assert "please report it" in done.stderr


def test_the_folder_of_the_output_file_is_made(trial: TrialBuilder, tmp_path: Path) -> None:
    trial.step(0, {"a": [1.0]})
    file = tmp_path / "new" / "verdicts.xml"
    status, _ = run(
        trial, "--rule", "ExplodingTensor", "--output", "junit", "--output-file", str(file)
    )
    assert status == 0
    assert "<testsuites" in file.read_text()
    status, output = run(trial, "--output-file", str(tmp_path))
    assert status == 2
    assert "is a folder; give the name of a file" in output.replace("\n", " ")


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
    verdicts = json.loads(output[output.index("[") :])  # what is told on stderr stands before it
    found = [v for v in verdicts if v["RuleEvaluationStatus"] == "IssuesFound"]
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
        ("VanishingGradient:threshold=1e9,threshold=2", "threshold is given twice, as 1e9 and 2"),
        ("LossNotDecreasing:num_steps=10:mode=TRAIN", "separate parameters by commas"),
    ],
)
def test_mistakes_are_reported(trial: TrialBuilder, rule: str, message: str) -> None:
    status, output = run(trial, "--rule", rule)
    assert status == 2
    assert message in output


def test_rules_are_listed_a_line_each() -> None:
    result = CliRunner().invoke(app, ["rules"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == sorted(available_rules())
    assert "threshold = 1e-07" not in result.output
    result = CliRunner().invoke(app, ["rules", "--all"], env={"COLUMNS": "200"})
    assert "threshold = 1e-07" in result.output
    assert "LossNotDecreasing" in result.output


COMMANDS = ["run", "watch", "evaluate", "status", "report", "ui", "rules explain", "local up"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 80])
def test_help_fills_the_width(command: str, width: int) -> None:
    arguments = [*command.split(), "--help"]
    output = CliRunner().invoke(app, arguments, env={"COLUMNS": str(width)}).output
    reported = output.partition("Usage:")[2].partition("╭")[0]
    lines = [line.strip() for line in reported.splitlines()]
    assert len(lines) > 3
    broken = [(line, after) for line, after in pairwise(lines[1:]) if line and after]
    assert not [line for line, after in broken if len(f"{line} {after.split()[0]}") <= width - 2]


def test_a_start_loads_neither_numerics_nor_the_hook() -> None:
    code = (
        "import sys, rule_runtime.cli.app\n"
        "sys.exit(bool({'numpy', 'hook_layer.core', 'boto3', 'jinja2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_reported() -> None:
    assert "Watch every step of a training job" in CliRunner().invoke(app, ["--help"]).output
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"stepwatch {metadata.version('stepwatch')}\n")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("evaluate runs/a --rule vanishing_gr", ["vanishing_gradient"]),
        ("run --rule LossS", ["LossSpike"]),
        ("watch runs/a --pack rec", ["recommended"]),
        ("rules explain dead_rel", ["dead_relu"]),
    ],
)
def test_the_shell_completes_names(typed: str, expected: list[str]) -> None:
    words = f"stepwatch {typed}"
    done = completed(
        [Path(sys.executable).parent / "stepwatch"],
        env={
            "_STEPWATCH_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
    )
    assert done.stdout.split() == expected, done.stderr


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['typer'] = None\nimport rule_runtime.cli; rule_runtime.cli.main()"
    )
    done = completed([sys.executable, "-c", code])
    assert done.returncode == 2
    assert install_hint("cli") in done.stderr


def test_a_file_of_rules_is_reported_with_its_rules_and_not_run(
    trial: TrialBuilder, tmp_path: Path
) -> None:
    trial.step(0, {"a": [1.0]})
    file = tmp_path / "my.py"
    file.write_text(
        "from rule_runtime import Rule as Base\nimport rule_runtime\n1 / 0\n"
        "class Odd(Base): ...\nclass Even(rule_runtime.Rule): ...\nclass Both(Odd, Even): ...\n"
        "class Other: ...\n"
    )
    form = f"name the rule in the file, {file}:CLASS"
    for rule in (f"{file}", f"{file}:threshold=3"):
        status, output = run(trial, "--rule", rule)
        assert status == 2
        assert f"{form}; it has Odd, Even, Both\n" in output
    file.write_text("class")
    assert f"{form}\n" in run(trial, "--rule", f"{file}")[1]
    file.unlink()
    assert f"{form}; but the file cannot be read: " in run(trial, "--rule", f"{file}")[1]


@pytest.mark.parametrize("arguments", [["--output", "json"], ["--output", "table"]])
def test_a_pipe_that_nobody_reads_is_no_issue(trial: TrialBuilder, arguments: list[str]) -> None:
    trial.step(0, {"gradient/a": [1.0]})
    path = str(trial.store.path)  # type: ignore[attr-defined]
    read_end, write_end = os.pipe()
    os.close(read_end)
    stepwatch = Path(sys.executable).parent / "stepwatch"
    done = subprocess.run(
        [stepwatch, "evaluate", path, "--rule", "ExplodingTensor", *arguments],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
