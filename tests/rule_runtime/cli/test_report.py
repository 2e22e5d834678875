"""`stepwatch report`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.local import LocalStore
from rule_runtime.cli.app import app
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.result_file import RuleResult
from rule_runtime.reporting import job_report
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.cli.invoking import invoke, invoke_json


@pytest.fixture
def run(tmp_path: Path) -> Path:
    builder = TrialBuilder(LocalStore(tmp_path / "job"))
    for step in range(4):
        builder.step(step, {"Loss_output_0": np.float32([1, 1, np.nan, 1][step])})
    builder.end()
    return tmp_path / "job"


def report(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *arguments])
    return done.exit_code, done.output


def test_a_run_is_judged_and_reported(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    status, reported = report(str(run), "--output-file", str(file))
    assert (status, reported) == (0, f"report: {file}\n")
    page = file.read_text()
    assert page.startswith("<!doctype html>")
    assert "<h3>NonFinite</h3>" in page
    assert "IssuesFound at step 2" in page


def test_what_was_written_is_told_as_json(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, reported = report(str(run), "--rule", "NonFinite", "--output", "json")
    assert status == 0
    found = json.loads(reported)
    assert found["report"] == "report.html"
    assert [each["RuleConfigurationName"] for each in found["verdicts"]] == ["NonFinite"]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["report.html"]


def test_rules_may_be_named_and_the_numbers_written(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    status, _ = report(str(run), "--rule", "ExplodingTensor", "--output-file", str(file))
    assert status == 0
    (verdict,) = json.loads(file.read_text())["verdicts"]
    assert verdict["RuleConfigurationName"] == "ExplodingTensor"


def test_stored_verdicts_are_taken_before_it_is_judged_anew(run: Path, tmp_path: Path) -> None:
    result = RuleResult(
        training_job_name="job", run_id="run-1", root_uri="x", rule="Mine",
        status=RuleStatus.NO_ISSUES_FOUND, details="4 steps evaluated", changed_at_ms=1,
    )  # fmt: skip
    folder = run / "rule-output" / "Mine"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(result.to_json()))
    file = tmp_path / "numbers.json"
    assert report(str(run), "--output-file", str(file))[0] == 0
    (verdict,) = json.loads(file.read_text())["verdicts"]
    assert (verdict["RuleConfigurationName"], verdict["Details"]) == ("Mine", "4 steps evaluated")


@pytest.mark.parametrize(
    "arguments", [["--output-file", "x/"], ["--output", "page.html"], ["--rule", "NoSuchRule"]]
)
def test_mistakes_have_the_status_2(run: Path, arguments: list[str]) -> None:
    assert report(str(run), *arguments)[0] == 2


def test_a_folder_without_a_run_is_said(tmp_path: Path) -> None:
    status, reported = report(str(tmp_path), "--output-file", str(tmp_path / "x.html"))
    assert status == 2
    assert "no saved step found" in reported
    assert not (tmp_path / "x.html").exists()


class TestAFileThatExists:
    @pytest.mark.parametrize("name", ["page.html", "numbers.json"])
    def test_an_earlier_report_is_replaced(self, run: Path, tmp_path: Path, name: str) -> None:
        file = tmp_path / name
        assert report(str(run), "--rule", "VanishingGradient", "--output-file", str(file))[0] == 0
        assert report(str(run), "--rule", "NonFinite", "--output-file", str(file))[0] == 0
        assert "NonFinite" in file.read_text()

    @pytest.mark.parametrize("name", ["train.py", "page.html", "numbers.json"])
    def test_a_file_that_is_no_report_is_kept(self, run: Path, tmp_path: Path, name: str) -> None:
        file = tmp_path / name
        file.write_text('{"mine": 1}')
        status, said = report(str(run), "--output-file", str(file))
        assert status == 2
        assert f"{file} exists and is no report of Stepwatch" in said
        assert "--overwrite" in said
        assert file.read_text() == '{"mine": 1}'
        assert report(str(run), "--output-file", str(file), "--overwrite")[0] == 0
        assert "NonFinite" in file.read_text()

    def test_an_empty_file_is_replaced(self, run: Path, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        file.touch()
        assert report(str(run), "--output-file", str(file))[0] == 0

    def test_python_keeps_it_as_well(self, run: Path, tmp_path: Path) -> None:
        file = tmp_path / "train.py"
        file.write_text("import torch")
        made = job_report(run)
        with pytest.raises(ValueError, match="no report of Stepwatch"):
            made.save(file)
        assert file.read_text() == "import torch"
        assert made.save(file, overwrite=True) == str(file)


class TestARunThatSaysItsRules:
    def ask(self, run: Path, *rules: dict[str, object]) -> None:
        store = LocalStore(run)
        job = JobFile("job", TrialBuilder().run or "", "local", "", debug_rule_configurations=rules)
        store.put(JOB_FILE, job.encode())

    @pytest.mark.parametrize("command", ["evaluate", "report", "watch"])
    def test_is_judged_by_them_whichever_command_is_asked(self, run: Path, command: str) -> None:
        mine = {"RuleConfigurationName": "Mine", "RuleParameters": {"rule_to_invoke": "NonFinite"}}
        self.ask(run, mine)
        where = ("--output-file", run / "page.html") if command == "report" else ()
        once = ("--once",) if command == "watch" else ()
        _, reported = invoke_json(command, run, *where, *once)
        verdicts = reported if command == "evaluate" else reported["verdicts"]
        assert [each["RuleConfigurationName"] for each in verdicts] == ["Mine"]
        _, reported = invoke_json("evaluate", run, "--rule", "exploding_tensor")
        assert [each["RuleConfigurationName"] for each in reported] == ["exploding_tensor"]

    def test_of_rules_that_cannot_be_made_here_that_is_reported(self, run: Path) -> None:
        theirs = {
            "RuleConfigurationName": "Theirs",
            "RuleParameters": {"source_s3_uri": "s3://bucket/x.py", "rule_to_invoke": "Theirs"},
        }
        self.ask(run, theirs)
        status, reported = invoke("evaluate", run)
        assert status == 2
        assert "Theirs: not evaluated here: s3://bucket/x.py is a file of its own" in reported
        assert "say --rule or --pack" in reported
        mine = {"RuleConfigurationName": "Mine", "RuleParameters": {"rule_to_invoke": "NonFinite"}}
        self.ask(run, theirs, mine)
        _, reported = invoke("evaluate", run)
        assert "Theirs: not evaluated here" in reported
        assert "Mine" in reported
