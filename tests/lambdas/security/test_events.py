"""Events that anybody may send: they cost little, and forge no line of the logs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.client import BaseClient

from infra.local.moto_patches.training_jobs import patch_training_job_life
from lambdas.contracts import environment
from lambdas.contracts.stopping import ALL
from tests.lambdas.conftest import Pipeline
from tests.lambdas.stop_job.jobs import (
    LOCAL,
    NOBODY,
    NOTHING_TO_DO,
    create_training_job,
    finding_of,
    job_status,
    native_finding,
    own_event,
    stop_file,
    stopped_by,
)

MOST = 110


@pytest.fixture(autouse=True)
def a_job_that_any_finding_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_training_job_life()
    monkeypatch.setenv(environment.STOP_POLICY, ALL)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The AWS calls made so far."""
    found: list[str] = []
    make_api_call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation_name: str, api_params: Any) -> Any:
        found.append(operation_name)
        return make_api_call(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return found


def many_findings(detail: dict[str, Any]) -> dict[str, Any]:
    """Return an event with as many findings as PutEvents takes."""
    statuses = [
        {"RuleConfigurationName": f"rule-{i}", "RuleEvaluationStatus": "IssuesFound"}
        for i in range(2500)
    ]
    return own_event(detail, DebugRuleEvaluationStatuses=statuses)


def test_thousands_of_findings_cost_stop_job_a_hundred_looks(
    pipeline: Pipeline, calls: list[str]
) -> None:
    event = many_findings(finding_of(pipeline, **LOCAL))
    assert len(json.dumps(event)) < 256 * 1024
    calls.clear()
    assert pipeline.stop(event) == NOTHING_TO_DO
    assert len(calls) <= MOST
    assert stop_file(pipeline) is None


@pytest.mark.parametrize(
    "changes",
    [{"account": "210987654321"}, {"region": "us-east-1"}, {"account": None}, {"region": 5}],
)
def test_an_event_of_another_account_or_region_stops_no_job_of_that_name(
    pipeline: Pipeline, changes: dict[str, Any]
) -> None:
    create_training_job(pipeline)
    finding_of(pipeline)
    assert stopped_by(pipeline, {**native_finding(), **changes}) == NOBODY


@pytest.mark.parametrize("field", ["StatusDetails", "RuleConfigurationName"])
def test_no_text_of_an_event_forges_a_line_of_the_log(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    create_training_job(pipeline)
    event = native_finding()
    status = event["detail"]["DebugRuleEvaluationStatuses"][0]
    status[field] = 'x"}\r\n{"level": "INFO", "message": "all is well"}\x1b[2J'
    assert pipeline.stop(event) is None
    assert job_status(pipeline) == "Stopping"
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines
    for line in lines:
        written = json.loads(line)
        assert written.get("message") != "all is well"
        assert "\x1b" not in line


def test_the_reason_in_stop_json_is_one_line(pipeline: Pipeline) -> None:
    create_training_job(pipeline)
    finding_of(pipeline)
    event = native_finding()
    status = event["detail"]["DebugRuleEvaluationStatuses"][0]
    status["StatusDetails"] = "a\r\nb\u2028c"
    assert pipeline.stop(event) is None
    signal = stop_file(pipeline)
    assert signal is not None
    assert signal["Reason"].splitlines() == ["a b c"]


def test_an_event_stops_no_job_that_a_table_full_of_others_does_not_confirm(
    pipeline: Pipeline,
) -> None:
    """A true finding of one's own job, with the name of another in its place."""
    create_training_job(pipeline, "another")
    detail = finding_of(pipeline)
    forged = own_event(detail, TrainingJobName="another")
    assert pipeline.stop(forged) == NOTHING_TO_DO
    assert job_status(pipeline, "another") == "InProgress"
