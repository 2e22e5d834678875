"""The registered schema: real events fit it, and events of another shape do not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator

from infra.constructs.event_schema import SCHEMA
from lambdas.contracts.events import STATUS_DETAIL_TYPE, STATUS_SCHEMA_VERSION, STATUS_SOURCE
from lambdas.shared.registration import Registration
from lambdas.shared.state_table import StateKey, StoredState
from lambdas.shared.status_event import status_detail
from rule_runtime.evaluation.outcome import Evidence, RuleStatus
from rule_runtime.evaluation.state import EvaluationState
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
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(SCHEMA).read_text())
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


def test_it_is_registered(template: Template, schema: dict[str, Any]) -> None:
    _, registry = only(resources(template, "AWS::EventSchemas::Registry"), "EventSchema")
    _, registered = only(resources(template, "AWS::EventSchemas::Schema"), "EventSchema")
    assert registered["RegistryName"] == registry["RegistryName"] == "stepwatch-dev"
    assert registered["SchemaName"] == "stepwatch.debugger@SageMakerTrainingJobStateChange"
    assert registered["Type"] == "JSONSchemaDraft4"
    assert json.loads(registered["Content"]) == schema
    outputs = template["Outputs"]
    assert outputs["StatusEventSchemaArn"]["Value"]["Fn::GetAtt"][1] == "SchemaArn"
