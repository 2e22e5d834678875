"""Log lines and metrics, as CloudWatch will read them."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lambdas.contracts.environment import ESTIMATES_COST, METRICS_NAMESPACE
from lambdas.contracts.events import STATE_PARTITION_KEY, STATE_SORT_KEY
from lambdas.contracts.prices import Prices
from lambdas.shared import clients
from lambdas.shared.observability import Telemetry


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_lines_carry_rule_job_and_invocation(lines: Any) -> None:
    telemetry = Telemetry("observed_evaluator", rule="VanishingGradient")
    with telemetry.invocation(SimpleNamespace(aws_request_id="52fdfc07")):
        with telemetry.job("mnist-7", "01JD"):
            telemetry.warning("something", object_key="a b")
        telemetry.info("later")
    inside, outside = lines()
    expected = {
        "level": "WARNING",
        "message": "something",
        "service": "observed_evaluator",
        "rule": "VanishingGradient",
        "training_job_name": "mnist-7",
        "run_id": "01JD",
        "function_request_id": "52fdfc07",
        "object_key": "a b",
    }
    assert expected.items() <= inside.items()
    assert inside["location"].startswith("test_lines_carry")
    assert "training_job_name" not in outside


def test_metrics_go_out_once_an_invocation(lines: Any) -> None:
    telemetry = Telemetry("measured_evaluator", rule="VanishingGradient")
    for _ in range(2):
        with telemetry.invocation(None):
            telemetry.count("StepsEvaluated", 3)
            telemetry.count("StepsEvaluated", 4)
            telemetry.milliseconds("VerdictLatency", 12.5)
    with telemetry.invocation(None):
        pass
    written = lines()
    assert len(written) == 2
    for line in written:
        assert line["StepsEvaluated"] == [3.0, 4.0]
        assert line["VerdictLatency"] == [12.5]
        (metrics,) = line["_aws"]["CloudWatchMetrics"]
        assert metrics["Namespace"] == "Stepwatch"
        assert [sorted(dimensions) for dimensions in metrics["Dimensions"]] == [["rule", "service"]]


def test_metrics_go_out_when_the_invocation_fails(lines: Any) -> None:
    telemetry = Telemetry("failing_evaluator")

    def fail() -> None:
        with telemetry.invocation(None):
            telemetry.count("JobsFailed")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    (line,) = lines()
    assert line["JobsFailed"] == [1.0]


def test_metrics_go_to_the_namespace_of_the_deployment(
    lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(METRICS_NAMESPACE, "Stepwatch/prod")
    telemetry = Telemetry("placed_evaluator")
    with telemetry.invocation(None):
        telemetry.count("JobsFailed")
    (line,) = lines()
    (metrics,) = line["_aws"]["CloudWatchMetrics"]
    assert metrics["Namespace"] == "Stepwatch/prod"


def test_requests_of_an_invocation_are_counted(aws: None, lines: Any) -> None:
    telemetry = Telemetry("asking_evaluator")
    clients.dynamodb().describe_table(TableName="states")
    with telemetry.invocation(None):
        clients.dynamodb().describe_table(TableName="states")
        clients.s3().list_objects_v2(Bucket="tensors")
        telemetry.count("StepsEvaluated", 2)
    (line,) = lines()
    assert line["Requests"] == [2.0]


def test_requests_alone_are_no_reason_to_write_metrics(aws: None, lines: Any) -> None:
    """What looks each minute whether there is anything to do would pay for them each minute."""
    telemetry = Telemetry("idle_evaluator")
    with telemetry.invocation(None):
        clients.dynamodb().describe_table(TableName="states")
    assert lines() == []


def test_a_call_is_priced_by_requests_time_memory_and_messages(
    aws: None, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ESTIMATES_COST, "true")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024")
    prices, large = Prices(), {"S": "x" * 1500}
    telemetry = Telemetry("priced_evaluator", rule="NonFinite")
    with telemetry.invocation(None, num_messages=10):
        clients.s3().list_objects_v2(Bucket="tensors")
        clients.dynamodb().describe_table(TableName="states")
        began = time.perf_counter()
        while time.perf_counter() < began + 0.05:
            pass
        for item in ({}, {"text": large}):
            key = {STATE_PARTITION_KEY: {"S": "a"}, STATE_SORT_KEY: {"S": "b"}}
            clients.dynamodb().put_item(TableName="states", Item={**key, **item})
    (line,) = lines()
    requests = prices.s3_write + 3 * prices.table_write_unit + 21 * prices.queue_request
    (dollars,) = line["EstimatedCost"]
    of_time = dollars - requests - prices.call
    assert 0.05 * prices.gb_second_arm64 < of_time < 5 * prices.gb_second_x86_64
    assert (line["service"], "rule" in line) == ("every_function", False)


def test_without_the_setting_no_call_is_priced(lines: Any) -> None:
    with Telemetry("frugal_evaluator").invocation(None, num_messages=10):
        pass
    assert lines() == []
