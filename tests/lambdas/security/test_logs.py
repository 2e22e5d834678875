"""What the logs never hold: values of tensors, credentials, and whole events."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import numpy as np
import pytest

from hook_layer.storage.s3 import S3Store
from lambdas.contracts import environment
from lambdas.shared import clients
from rule_runtime.testing.trial_builder import TrialBuilder
from tests.lambdas.conftest import ROOT, RUN, Pipeline, client

VALUE, SECRET = 424242.125, "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def _logs_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """Loggers of functions live as long as the process, with the output of an earlier test."""
    for name in ("evaluate_rule", "stop_job"):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.stream = (
                    sys.stdout
                )  # to flush the earlier one, as setStream does, would fail


@pytest.fixture
def judging_values(pipeline: Pipeline) -> Pipeline:
    """An evaluator whose rule reads the values themselves, and credentials worth stealing."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        pipeline.patch.setenv(name, SECRET)
    parameters = {"rule_to_invoke": "CheckInputImages", "regex": ".*", "threshold_samples": "8"}
    pipeline.patch.setenv(environment.RULE_PARAMETERS, json.dumps(parameters))
    clients.forget()
    pipeline.forget()
    pipeline.put_job()
    return pipeline


def put_steps(number: int) -> TrialBuilder:
    builder = TrialBuilder(S3Store(f"s3://tensors/{ROOT}", client=client("s3")), run=RUN)
    for step in range(number):
        builder.step(step, {"input_0": np.full((4, 3, 2, 2), VALUE, dtype=np.float32)})
    return builder


def written(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr()
    return printed.out + printed.err


def test_no_value_of_a_tensor_and_no_credential(
    judging_values: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    put_steps(4)
    judging_values.deliver()
    assert judging_values.statuses()[-1] == "IssuesFound", "the values were read"
    text = written(capsys)
    assert "status announced" in text
    assert "424242" not in text
    assert SECRET not in text


def test_not_when_a_file_is_damaged_either(
    judging_values: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    put_steps(2)
    listed = client("s3").list_objects_v2(Bucket="tensors", Prefix=f"{ROOT}events/")["Contents"]
    for found in listed:
        body = client("s3").get_object(Bucket="tensors", Key=found["Key"])["Body"].read()
        damaged = body[:20] + str(VALUE).encode() + body[29:-8]
        client("s3").put_object(Bucket="tensors", Key=found["Key"], Body=damaged)
    judging_values.put_marker()
    judging_values.deliver()
    assert judging_values.statuses()[-1] == "Error", "the values could not be read"
    assert "424242" not in written(capsys)


def test_not_when_a_request_fails(
    judging_values: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    put_steps(1)
    records = judging_values.receive()
    client("dynamodb").delete_table(TableName="states")
    assert judging_values.invoke(records), "the records come back"
    text = written(capsys)
    assert "job not evaluated" in text
    assert "ResourceNotFoundException" in text
    assert SECRET not in text


def test_no_event_is_written_whole(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    event: dict[str, Any] = {
        "source": "stepwatch.debugger",
        "detail": {
            "TrainingJobName": "mnist-7",
            "Password": SECRET,
            "DebugRuleEvaluationStatuses": [
                {"RuleConfigurationName": "NonFinite", "RuleEvaluationStatus": "IssuesFound"}
            ],
        },
    }
    pipeline.stop(event)
    text = written(capsys)
    assert "the job is not stopped" in text
    assert SECRET not in text
