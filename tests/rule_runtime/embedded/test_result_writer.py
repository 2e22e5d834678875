"""What `stepwatch run` leaves beside the tensors is what the evaluators in the cloud leave."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import StorageError, open_store
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.result_file import parse_result, result_place
from rule_runtime.jobs import DebugJob
from rule_runtime.testing import TrialBuilder

NOW = 1_790_000_000.0
RULES = ("VanishingGradient", "ExplodingTensor")
HEALTHY = {"gradient/a": [1.0]}
SICK = {"gradient/a": [0.0]}


def begun(folder: Path) -> TrialBuilder:
    trial = TrialBuilder(open_store(folder / "train-1"))
    rules = tuple({"RuleConfigurationName": name} for name in RULES)
    job = JobFile(
        "train-1",
        trial.run or "",
        "local",
        "2026-11-21T00:00:00+00:00",
        debug_rule_configurations=rules,
    )
    trial.store.put(JOB_FILE, job.encode())
    return trial


def judge_of(trial: TrialBuilder) -> LiveJudge:
    rules = [(name, create_rule(name)) for name in RULES]
    return LiveJudge(trial.store, rules, clock=lambda: NOW)


def statuses(folder: Path) -> list[str]:
    summary = DebugJob("train-1", folder).rule_job_summary()
    return [each["RuleEvaluationStatus"] for each in summary]


def test_the_owner_of_the_job_sees_its_verdicts(tmp_path: Path) -> None:
    trial = begun(tmp_path)
    judge = judge_of(trial)
    trial.step(0, HEALTHY)
    judge.look()
    assert statuses(tmp_path) == ["InProgress", "InProgress"]
    trial.step(1, SICK)
    judge.look()
    assert statuses(tmp_path) == ["IssuesFound", "InProgress"]
    trial.step(2, SICK)
    judge.look(is_over=True)
    assert statuses(tmp_path) == ["IssuesFound", "NoIssuesFound"]
    folder, key = result_place(trial.store.uri, "VanishingGradient")
    result = parse_result(open_store(folder).get(key), file=key)
    assert result.run_id == trial.run
    assert result.changed_at_ms == NOW * 1000
    assert result.evidence is not None
    assert result.evidence["count"] == 2, "what was found behind the first finding"


def test_a_result_is_written_when_it_is_new_only(tmp_path: Path) -> None:
    trial = begun(tmp_path)
    judge = judge_of(trial)
    trial.step(0, SICK)
    judge.look()
    folder, key = result_place(trial.store.uri, "VanishingGradient")
    open_store(folder).put(key, json.dumps({}).encode())
    judge.look()
    assert open_store(folder).get(key) == b"{}"


def test_a_folder_that_takes_no_results_changes_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial = begun(tmp_path)
    judge = judge_of(trial)
    trial.step(0, SICK)
    put = trial.store.put

    def refuse(key: str, data: bytes) -> None:
        if key.startswith("rule-output/"):
            raise StorageError(f"{key}: no space")
        put(key, data)

    monkeypatch.setattr(trial.store, "put", refuse)
    with caplog.at_level(logging.WARNING):
        judge.look(is_over=True)
    assert judge.states["VanishingGradient"].status.value == "IssuesFound"
    assert caplog.text.count("is not written as a file") == 1
