"""`stepwatch status`: a job and its rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from hook_layer.storage.local import LocalStore
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.result_file import RuleResult, result_place
from tests.rule_runtime.cli.invoking import invoke, invoke_json, trial_in

RULES = ("NonFinite", "LossSpike")


@pytest.fixture
def root(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "mnist-7" / "debug-output")
    job = JobFile(
        training_job_name="mnist-7",
        run_id="run-1",
        platform="local",
        started_at="2026-01-01T00:00:00Z",
        debug_rule_configurations=tuple({"RuleConfigurationName": name} for name in RULES),
    )
    store.put("job.json", job.encode())
    return store


def tell(
    root: LocalStore,
    rule: str,
    status: RuleStatus,
    details: str,
    evidence: Mapping[str, Any] | None = None,
) -> None:
    result = RuleResult(
        training_job_name="mnist-7",
        run_id="run-1",
        root_uri=root.uri,
        rule=rule,
        status=status,
        details=details,
        changed_at_ms=1_767_225_600_000,
        evidence=evidence,
    )
    folder, key = result_place(root.uri, rule)
    LocalStore.from_uri(folder).put(key, json.dumps(result.to_json()).encode())


def test_every_rule_is_told_from_the_beginning(root: LocalStore, tmp_path: Path) -> None:
    status, found = invoke_json("status", "mnist-7", "--output-path", tmp_path)
    assert status == 0
    assert found["TrainingJobStatus"] == "InProgress"
    statuses = found["DebugRuleEvaluationStatuses"]
    assert [each["RuleConfigurationName"] for each in statuses] == list(RULES)
    assert {each["RuleEvaluationStatus"] for each in statuses} == {"InProgress"}


def test_a_finding_is_reported_with_its_evidence(root: LocalStore, tmp_path: Path) -> None:
    tell(root, "NonFinite", RuleStatus.ISSUES_FOUND, "Condition met\nloss: is NaN (worker_0)")
    tell(root, "LossSpike", RuleStatus.ERROR, "no loss was saved")
    status, output = invoke("status", "mnist-7", "--output-path", tmp_path)
    assert status == 1
    assert "loss: is NaN (worker_0)" in output
    assert "2026-01-01 00:00:00" in output


def test_the_cause_is_named(root: LocalStore, tmp_path: Path) -> None:
    evidence = Evidence(
        step=3,
        mode="TRAIN",
        worker="worker_0",
        tensor="fc\x1b[31m.weight",
        measure="nan",
        value=1.0,
        threshold=0.0,
        sentence="fc.weight: has NaN",
        remedy="Lower the learning rate.",
    ).to_json()
    tell(root, "NonFinite", RuleStatus.ISSUES_FOUND, "Condition met", evidence)
    tell(root, "LossSpike", RuleStatus.ISSUES_FOUND, "Condition met", {"step": "of others"})
    _, output = invoke("status", "mnist-7", "--output-path", tmp_path)
    assert "A number is not finite: seen at step 3 in fc" in output
    assert "Change: Lower the learning rate." in output
    assert "\x1b" not in output
    _, found = invoke_json("status", "mnist-7", "--output-path", tmp_path)
    assert found["Diagnosis"]["Cause"] == "not_finite"


def test_what_others_wrote_is_no_command_to_the_terminal(root: LocalStore, tmp_path: Path) -> None:
    for rule in RULES:
        tell(root, rule, RuleStatus.ISSUES_FOUND, "loss:\x1b]52;c;ZXZpbA==\x07 is NaN")
    root.put("training_job_end.ts", EndMarker("run-1", {}).encode())
    for options in ([], ["--wait"]):
        status, output = invoke("status", "mnist-7", "--output-path", tmp_path, *options)
        assert status == 1
        assert "]52;c;ZXZpbA==" in output
        assert output.replace("\n", "").isprintable()


def test_findings_are_listed_first(root: LocalStore, tmp_path: Path) -> None:
    tell(root, "NonFinite", RuleStatus.NO_ISSUES_FOUND, "5 steps evaluated")
    tell(root, "LossSpike", RuleStatus.ISSUES_FOUND, "Condition met\nloss: is 12")
    _, output = invoke("status", "mnist-7", "--output-path", tmp_path)
    assert output.index("LossSpike") < output.index("NonFinite")


def test_a_rule_that_failed_is_no_success(root: LocalStore, tmp_path: Path) -> None:
    tell(root, "LossSpike", RuleStatus.ERROR, "no loss was saved")
    assert invoke("status", "mnist-7", "--output-path", tmp_path)[0] == 2


def test_a_rule_that_had_nothing_to_judge_is_told_so(root: LocalStore, tmp_path: Path) -> None:
    insufficient = (
        "InsufficientInformationForRuleInvocation: Insufficient information to invoke rule "
        "LossSpike: no loss was saved"
    )
    tell(root, "LossSpike", RuleStatus.ERROR, insufficient)
    tell(root, "NonFinite", RuleStatus.NO_ISSUES_FOUND, "5 steps evaluated")
    status, output = invoke("status", "mnist-7", "--output-path", tmp_path)
    assert status == 0
    assert "1 rule not evaluated; `-v` shows why" in output
    assert "no loss was saved" not in output
    _, output = invoke("status", "mnist-7", "--output-path", tmp_path, "-v")
    assert "no loss was saved" in " ".join(output.split())
    assert "Insufficient" not in output
    tell(root, "NonFinite", RuleStatus.ERROR, insufficient)
    assert invoke("status", "mnist-7", "--output-path", tmp_path)[0] == 2


@pytest.mark.parametrize("place", ["mnist-7", "mnist-7/debug-output", "mnist-7/", "./mnist-7"])
def test_a_job_can_be_named_by_its_folder(
    root: LocalStore, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for named in (place, f"{tmp_path}/{place}", f"file://{tmp_path}/{place}"):
        tell(root, "NonFinite", RuleStatus.ISSUES_FOUND, "Condition met\nloss: is NaN (worker_0)")
        status, output = invoke("status", named)
        assert status == 1
        assert output.startswith("mnist-7: InProgress, Training\n")
        assert "loss: is NaN (worker_0)" in output


def test_a_run_that_lies_in_the_folder_itself_is_found_by_it(tmp_path: Path) -> None:
    job = JobFile("mnist-7", "run-1", "local", "2026-01-01T00:00:00Z")
    LocalStore(tmp_path / "runs" / "mnist-7").put("job.json", job.encode())
    _, output = invoke("status", tmp_path / "runs" / "mnist-7")
    assert output.startswith("mnist-7: InProgress, Training\n")
    status, output = invoke("status", tmp_path / "runs" / "mnist-8")
    assert status == 2
    assert "the job mnist-8 is unknown" in output


def test_a_mistyped_job_is_reported(root: LocalStore, tmp_path: Path) -> None:
    status, output = invoke("status", "mnist-8", "--output-path", tmp_path)
    assert status == 2
    assert "the job mnist-8 is unknown" in output


def test_a_folder_without_a_run_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    status, output = invoke("status", "empty")
    assert status == 2
    assert output.startswith("stepwatch: neither the folder empty nor its debug-")
    _, output = invoke("status", "no-folder")
    assert "the folder" not in output


@pytest.mark.parametrize(
    ("exit_status", "reported"),
    [
        (None, "mnist-7: Completed\n"),
        (0, "mnist-7: Completed\n"),
        (9, "mnist-7: Failed: the script ended with status 9\n"),
        (130, "mnist-7: Stopped\n"),
    ],
)
def test_how_the_script_ended_is_reported_once(
    root: LocalStore, tmp_path: Path, exit_status: int | None, reported: str
) -> None:
    root.put("training_job_end.ts", EndMarker("run-1", {}, exit_status).encode())
    assert reported in invoke("status", "mnist-7", "--output-path", tmp_path)[1]


def test_it_waits_until_every_rule_has_ended(root: LocalStore, tmp_path: Path) -> None:
    for rule in RULES:
        tell(root, rule, RuleStatus.NO_ISSUES_FOUND, "5 steps evaluated")
    trial_in(root.path).end()
    status, output = invoke("status", "mnist-7", "--output-path", tmp_path, "--wait")
    assert status == 0
    assert "NonFinite: NoIssuesFound" in output


def test_a_job_is_asked_to_stop(root: LocalStore, tmp_path: Path) -> None:
    assert invoke("status", "mnist-7", "--output-path", tmp_path, "--stop")[0] == 0
    assert json.loads(root.get(STOP_FILE))["RunId"] == "run-1"


def test_a_damaged_run_hides_no_other_of_its_session(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    runs = tuple(SessionRun(f"run-{n}", "", f"id-{n}", "2026-01-01T00:00:00", 1) for n in (1, 2))
    session = SessionFile(("python",), "/", "2026-01-01T00:00:00", runs)
    store = LocalStore(folder)
    store.put(SESSION_FILE, session.encode())
    store.put("run-1/job.json", b"{")
    job = JobFile("healthy", "id-2", "local", "2026-01-01T00:00:00Z")
    store.put("run-2/job.json", job.encode())
    status, output = invoke("status", folder)
    assert status == 2
    assert "session-run-1: " in output
    assert "session-run-2: InProgress" in output
