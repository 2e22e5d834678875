"""The registered schema: real events fit it, and events of another shape do not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft4Validator

from infra.constructs.event_schema import SCHEMAS
from lambdas.contracts.events import (
    JOB_SUMMARY_DETAIL_TYPE,
    STATUS_DETAIL_TYPE,
    STATUS_SCHEMA_VERSION,
    STATUS_SOURCE,
    STOP_OVERDUE_DETAIL_TYPE,
)
from lambdas.evaluate_rule.publication import status_detail
from lambdas.finish_job.job_summary import summary_detail
from lambdas.notify.events import OverdueStop, parse_event
from lambdas.shared.registration import Registration
from lambdas.shared.state_table import StateKey, StoredState
from lambdas.shared.stop_table import StopItem, StopReason, StopTarget
from lambdas.stop_job.confirmation import overdue_detail
from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.engine.state import EvaluationState
from tests.infra.queries import Template, only, resources

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/mnist-7"
ROOT = "s3://bucket/mnist-7/debug-output/"
EVIDENCE = Evidence(
    step=500,
    mode="TRAIN",
    worker="worker_0",
    tensor="gradient/Net_conv1.weight",
    measure="abs_mean",
    value=3.1e-09,
    threshold=1e-07,
    sentence="gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07",
    remedy="look for dead units",
    mode_step=470,
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return load("StatusEvent")


@pytest.fixture(scope="module")
def overdue_schema() -> dict[str, Any]:
    return load("StopOverdueEvent")


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SCHEMAS[name].file.read_text())
    Draft4Validator.check_schema(loaded)
    return loaded


def event(
    status: RuleStatus = RuleStatus.ISSUES_FOUND,
    *,
    evidence: Evidence | None = EVIDENCE,
    arn: str | None = ARN,
    run: str = "01JD",
) -> dict[str, Any]:
    """Return an event as it arrives at a consumer: the bus puts the envelope around ours."""
    state = replace(EvaluationState.initial().with_status(status), evidence=evidence)
    stored = StoredState(StateKey(ROOT, run, "VanishingGradient"), state, 2, 1795212403000)
    job = Registration(ROOT, "mnist-7", run, "sagemaker" if arn else "local", arn)
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": STATUS_DETAIL_TYPE,
        "source": STATUS_SOURCE,
        "account": "123456789012",
        "time": "2026-11-20T10:00:00Z",
        "region": "eu-west-1",
        "resources": [arn] if arn else [],
        "detail": json.loads(json.dumps(status_detail(job, stored), allow_nan=False)),
    }


@pytest.mark.parametrize(
    "real",
    [
        *(event(status) for status in RuleStatus),
        event(RuleStatus.IN_PROGRESS, evidence=None),
        event(arn=None),
        event(run=""),
        event(evidence=replace(EVIDENCE, value=math.nan, threshold=-math.inf)),
        event(evidence=replace(EVIDENCE, tensor="t" * 9000, sentence="s" * 9000)),
        event(evidence=EVIDENCE.seen_again(600)),
    ],
)
def test_real_events_fit(schema: dict[str, Any], real: dict[str, Any]) -> None:
    Draft4Validator(schema).validate(real)


def test_every_key_of_a_real_event_is_described(schema: dict[str, Any]) -> None:
    real, definitions = event(), schema["definitions"]
    detail = real["detail"]
    (status,) = detail["DebugRuleEvaluationStatuses"]
    for given, described in (
        (real, schema),
        (detail, definitions["Detail"]),
        (status, definitions["RuleStatus"]),
        (detail["Evidence"], definitions["Evidence"]),
    ):
        assert given.keys() == described["properties"].keys()


def broken(path: list[Any], value: Any) -> dict[str, Any]:
    """Return an event one of whose values is another; None takes it away."""
    made = event()
    place: Any = made
    for part in path[:-1]:
        place = place[part]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


STATUS = ["detail", "DebugRuleEvaluationStatuses", 0]


@pytest.mark.parametrize(
    "other",
    [
        broken(["source"], "aws.sagemaker"),
        broken(["detail-type"], "Something Else"),
        broken(["detail", "SchemaVersion"], STATUS_SCHEMA_VERSION + 1),
        broken(["detail", "RunId"], None),
        broken(["detail", "DebugOutputUri"], "https://bucket/job/"),
        broken(["detail", "TrainingJobStatus"], "Completed"),
        broken(["detail", "DebugRuleEvaluationStatuses"], []),
        broken([*STATUS, "RuleEvaluationStatus"], "Fine"),
        broken([*STATUS, "LastModifiedTime"], "2026-11-20"),
        broken([*STATUS, "StatusDetails"], None),
        broken(["detail", "Evidence", "step"], "500"),
        broken(["detail", "Evidence", "tensor"], None),
    ],
)
def test_events_of_another_shape_do_not(schema: dict[str, Any], other: dict[str, Any]) -> None:
    assert not Draft4Validator(schema).is_valid(other)


def overdue_event(platform: str = "sagemaker", root: str = ROOT, run: str = "01JD") -> Any:
    """Return the news that a job does not end, as it arrives at a consumer."""
    target = StopTarget("mnist-7", platform, root, run, arn=ARN)
    item = StopItem(
        target, StopReason("NonFinite", "w: 4 NaN"), "requested", 2, 1795212403000, 1795213003000
    )
    return {
        **event(),
        "detail-type": STOP_OVERDUE_DETAIL_TYPE,
        "resources": [],
        "detail": json.loads(json.dumps(overdue_detail(item), allow_nan=False)),
    }


@pytest.mark.parametrize(
    "real",
    [
        *(overdue_event(platform) for platform in ("sagemaker", "batch", "ecs", "loop")),
        overdue_event(root="", run=""),
    ],
)
def test_real_news_of_overdue_stops_fit(overdue_schema: dict[str, Any], real: Any) -> None:
    Draft4Validator(overdue_schema).validate(real)
    assert isinstance(parse_event(real)[0], OverdueStop)
    described = overdue_schema["definitions"]["Detail"]
    assert real["detail"].keys() == described["properties"].keys() == set(described["required"])


@pytest.mark.parametrize(
    ("key", "value"), [("Platform", "else"), ("NumRequests", 1), ("RequestedAt", "now")]
)
def test_other_news_do_not(overdue_schema: dict[str, Any], key: str, value: Any) -> None:
    other = overdue_event()
    other["detail"][key] = value
    assert not Draft4Validator(overdue_schema).is_valid(other)
    assert not Draft4Validator(overdue_schema).is_valid(event())


def summary_event(status: RuleStatus, arn: str | None = ARN, evidence: Any = EVIDENCE) -> Any:
    """Return the summary of a job, as it arrives at a consumer."""
    state = replace(EvaluationState.initial().with_status(status), evidence=evidence)
    job = Registration(ROOT, "mnist-7", "01JD", "sagemaker" if arn else "local", arn)
    detail = summary_detail(job, {"VanishingGradient": state, "Mine": EvaluationState.initial()})
    return {
        **event(arn=arn),
        "detail-type": JOB_SUMMARY_DETAIL_TYPE,
        "detail": json.loads(json.dumps(detail, allow_nan=False)),
    }


@pytest.mark.parametrize(
    "real",
    [
        *(summary_event(status) for status in RuleStatus),
        summary_event(RuleStatus.NO_ISSUES_FOUND, None, None),
        summary_event(RuleStatus.ISSUES_FOUND, ARN, replace(EVIDENCE, tensor="t" * 9000)),
    ],
)
def test_real_summaries_fit(real: Any) -> None:
    Draft4Validator(load("JobSummaryEvent")).validate(real)


def test_every_key_of_a_summary_is_described() -> None:
    detail = summary_event(RuleStatus.ISSUES_FOUND)["detail"]
    definitions = load("JobSummaryEvent")["definitions"]
    for given, described in (
        (detail, definitions["Detail"]),
        (detail["Diagnosis"], definitions["Diagnosis"]),
        (detail["DebugRuleEvaluationStatuses"][0], definitions["RuleStatus"]),
    ):
        assert given.keys() == described["properties"].keys()


def test_all_are_registered(template: Template) -> None:
    _, registry = only(resources(template, "AWS::EventSchemas::Registry"), "EventSchema")
    registered = {
        found["SchemaName"]: found
        for found in resources(template, "AWS::EventSchemas::Schema").values()
    }
    assert {name: json.loads(found["Content"]) for name, found in registered.items()} == {
        "stepwatch.debugger@SageMakerTrainingJobStateChange": load("StatusEvent"),
        "stepwatch.debugger@StepwatchJobSummary": load("JobSummaryEvent"),
        "stepwatch.debugger@StepwatchStopOverdue": load("StopOverdueEvent"),
    }
    for found in registered.values():
        assert found["RegistryName"] == registry["RegistryName"] == "stepwatch-dev"
        assert found["Type"] == "JSONSchemaDraft4"
    status_event, _ = only(resources(template, "AWS::EventSchemas::Schema"), "StatusEvent")
    outputs = template["Outputs"]
    assert outputs["StatusEventSchemaArn"]["Value"]["Fn::GetAtt"] == [status_event, "SchemaArn"]
