"""A job in a folder, which no deployment watches, is judged by whoever waits for its rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import END_MARKER, JOB_FILE
from hook_layer.storage.base import StorageError, open_store
from rule_runtime.configuration import Rule, rule_configs
from rule_runtime.jobs import DebugJob, PreparedJob, prepare
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.cli.invoking import invoke

STARTED = "2026-11-20T10:00:00+00:00"
VANISHING = Rule.sagemaker(rule_configs.vanishing_gradient(), rule_parameters={"threshold": 1e-3})
QUIET = Rule.sagemaker(rule_configs.vanishing_gradient(), "quiet", rule_parameters={"threshold": 0})
SOURCE = """
from rule_runtime import Rule
from rule_runtime.engine.outcome import Passed


class Fine(Rule):
    def check(self, step, memory):
        return Passed()
"""


def trained(folder: Path, *rules: Rule) -> PreparedJob:
    """Return a job in a folder whose training has ended, and which nobody has judged."""
    job = prepare(job_name="mnist-7", output_path=folder, rules=rules)
    members = job.configuration.to_json("mnist-7")["DebugRuleConfigurations"]
    store = open_store(job.debug_output)
    file = JobFile("mnist-7", "run-1", "local", STARTED, debug_rule_configurations=tuple(members))
    store.put(JOB_FILE, file.encode())
    trial = TrialBuilder(store, run="run-1")
    trial.step(0, {"gradient/w": [1e-5, -1e-5]})
    store.put(END_MARKER, EndMarker("run-1").encode())
    return job


def never_sleeps(seconds: float) -> None:
    pytest.fail(f"it waits {seconds} s for verdicts that nobody gives")


def waited(job: DebugJob) -> dict[str, str]:
    summary = job.wait_for_rules(out=lambda _: None)
    return {each["RuleConfigurationName"]: each["RuleEvaluationStatus"] for each in summary}


def elsewhere(folder: Path, **arguments: Any) -> DebugJob:
    return DebugJob("mnist-7", folder, sleep=never_sleeps, **arguments)


def test_waiting_for_the_rules_judges_the_run(tmp_path: Path) -> None:
    trained(tmp_path, VANISHING, QUIET)
    expected = {"VanishingGradient": "IssuesFound", "quiet": "NoIssuesFound"}
    assert waited(elsewhere(tmp_path)) == expected
    summary = DebugJob("mnist-7", tmp_path).rule_job_summary()
    assert "at step 0 resulted in the condition being met" in summary[0]["StatusDetails"]
    assert [each["RuleEvaluationStatus"] for each in summary] == list(expected.values())


def test_the_command_line_judges_it_too(tmp_path: Path) -> None:
    trained(tmp_path, VANISHING)
    status, output = invoke("status", "mnist-7", "--output-path", tmp_path, "--wait")
    assert status == 1
    assert "VanishingGradient: IssuesFound" in output


def test_until_then_it_is_said_how(tmp_path: Path) -> None:
    (member,) = trained(tmp_path, VANISHING).job().rule_job_summary()
    assert member["RuleEvaluationStatus"] == "InProgress"
    assert "wait_for_rules()" in member["StatusDetails"]
    assert "stepwatch evaluate file://" in member["StatusDetails"]


def test_a_verdict_that_is_there_stays(tmp_path: Path) -> None:
    job = trained(tmp_path, VANISHING)
    waited(job.job())
    (result,) = tmp_path.glob("*/rule-output/*/status.json")
    before = result.read_bytes()
    waited(job.job())
    assert result.read_bytes() == before


def test_a_custom_rule_judges_where_its_file_was_named(tmp_path: Path) -> None:
    source = tmp_path / "fine.py"
    source.write_text(SOURCE)
    custom = Rule.custom("Mine", source=str(source), rule_to_invoke="Fine")
    job = trained(tmp_path / "out", custom)
    # Who may write the folder could have named any file of this machine.
    with pytest.raises(ValueError, match=r"rule Mine.*prepare\(\.\.\.\)\.job\(\)") as reported:
        waited(elsewhere(tmp_path / "out"))
    assert f"--rule {source}:Fine" in str(reported.value)
    assert waited(job.job()) == {"Mine": "NoIssuesFound"}


def test_its_file_may_be_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "fine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "out", Rule.custom("Mine", source="rules/fine.py", rule_to_invoke="Fine"))
    job = elsewhere(tmp_path / "out", rule_sources=["rules/fine.py"])
    assert waited(job) == {"Mine": "NoIssuesFound"}


def test_a_rule_of_a_file_that_is_named_by_a_uri_judges(tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(SOURCE)
    source = (tmp_path / "fine.py").as_uri()
    trained(tmp_path / "out", Rule.custom("Mine", source=source, rule_to_invoke="Fine"))
    job = elsewhere(tmp_path / "out", rule_sources=[source])
    assert waited(job) == {"Mine": "NoIssuesFound"}


def test_a_rule_that_this_machine_lacks_is_judged_where_it_is(tmp_path: Path) -> None:
    source = tmp_path / "fine.py"
    source.write_text("import what_this_machine_lacks\n" + SOURCE)
    custom = Rule.custom("Mine", source=str(source), rule_to_invoke="Fine")
    job = trained(tmp_path / "out", Rule.custom("Ours"), custom, VANISHING)
    with pytest.raises(
        ValueError, match="Ours is not evaluated: there is no rule 'Ours'"
    ) as reported:
        waited(job.job())
    assert "the rule Mine is not evaluated" in str(reported.value)
    assert "what_this_machine_lacks" in str(reported.value)
    source.write_text(SOURCE)
    with pytest.raises(ValueError, match="Ours is not evaluated") as reported:
        waited(job.job())
    assert "Mine" not in str(reported.value)
    found = [each["RuleEvaluationStatus"] for each in job.job().rule_job_summary()]
    assert found == ["InProgress", "NoIssuesFound", "IssuesFound"]


def with_entries(folder: Path, *entries: Any) -> None:
    """Ask for these rules, beside one that is right, in a run that has ended."""
    store = open_store(trained(folder, VANISHING).debug_output)
    parameters = {"rule_to_invoke": "VanishingGradient", "threshold": "0"}
    good = {"RuleConfigurationName": "Good", "RuleParameters": parameters}
    rules = (*entries, good)
    store.put(
        JOB_FILE,
        JobFile("mnist-7", "run-1", "local", STARTED, debug_rule_configurations=rules).encode(),
    )


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ([1], "RuleParameters are [1], but must be an object"),
        ({"rule_to_invoke": 5}, "rule_to_invoke in RuleParameters is 5"),
        ({"source_s3_uri": 7}, "source_s3_uri in RuleParameters is 7"),
        ({"source_s3_uri": ["a"]}, "source_s3_uri in RuleParameters is ['a']"),
    ],
)
def test_an_entry_that_is_no_rule_ends_with_the_reason(
    tmp_path: Path, parameters: Any, reason: str
) -> None:
    with_entries(tmp_path, {"RuleConfigurationName": "Odd", "RuleParameters": parameters})
    assert waited(elsewhere(tmp_path)) == {"Odd": "Error", "Good": "NoIssuesFound"}
    odd, _ = elsewhere(tmp_path).rule_job_summary()
    assert reason in odd["StatusDetails"]


@pytest.mark.parametrize("entry", [{}, {"RuleConfigurationName": ["a"]}])
def test_an_entry_without_a_name_is_reported_and_the_others_judge(
    tmp_path: Path, entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with_entries(tmp_path, entry)
    with pytest.raises(ValueError, match=r"entry 1 of DebugRuleConfigurations is ignored"):
        waited(elsewhere(tmp_path))
    job = elsewhere(tmp_path)
    for _ in range(2):
        (member,) = job.rule_job_summary()
        assert member["RuleEvaluationStatus"] == "NoIssuesFound"
    assert len([message for message in caplog.messages if "entry 1" in message]) == 1


def test_verdicts_that_cannot_be_written_end_the_wait(tmp_path: Path) -> None:
    trained(tmp_path, VANISHING)
    (tmp_path / "mnist-7" / "rule-output").write_text("in the way")
    with pytest.raises(StorageError, match=r"VanishingGradient cannot be written.*evaluate"):
        waited(elsewhere(tmp_path))
