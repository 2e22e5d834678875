"""Jobs that were asked to stop are looked after until they have ended, or somebody is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from infra.local.moto_patches.training_jobs import finish_training_job
from lambdas.contracts import environment
from lambdas.shared import clients
from tests.lambdas.conftest import LambdaContext, Pipeline, job_bytes, marker_bytes, refusal
from tests.lambdas.stop_job.jobs import (
    ACCOUNT,
    LOCAL,
    NEXT_RUN,
    REGION,
    ROOT,
    RULE,
    RUN,
    create_training_job,
    finding_of,
    job_status,
    native_finding,
    own_event,
    stop_file,
)
from tests.lambdas.stop_job.test_containers import (
    BATCH_ARN,
    ROOT_URI,
    TAG,
    described_job,
)

DUE = {"detail-type": "Stop Confirmation Due"}
KEY = {"run": {"S": "stop#mnist-7"}, "rule": {"S": f"s3://tensors/{ROOT}#{RUN}"}}
NATIVE_KEY = {"run": {"S": "stop#mnist-7"}, "rule": {"S": "#"}}


def reported(pipeline: Pipeline, news: str) -> list[dict[str, Any]]:
    answer = pipeline.aws("sqs").receive_message(QueueUrl=news, MaxNumberOfMessages=10)
    return [json.loads(message["Body"])["detail"] for message in answer.get("Messages", [])]


def item(pipeline: Pipeline, key: dict[str, Any] = KEY) -> dict[str, Any]:
    answer = pipeline.aws("dynamodb").get_item(TableName="states", Key=key)
    found: dict[str, Any] = answer["Item"]
    return found


def let_pass(pipeline: Pipeline, seconds: float, key: dict[str, Any] = KEY) -> None:
    """Make the request older."""
    pipeline.aws("dynamodb").update_item(
        TableName="states",
        Key=key,
        UpdateExpression="SET updated_at = updated_at - :past, requested_at = requested_at - :past",
        ExpressionAttributeValues={":past": {"N": str(round(seconds * 1000))}},
    )


def confirm(pipeline: Pipeline, remaining_ms: int = 60_000) -> None:
    answer = pipeline.stop_job.lambda_handler(DUE, LambdaContext([remaining_ms]))
    assert answer is None


class TestOnSageMaker:
    def test_a_job_that_ended_closes_the_request(self, pipeline: Pipeline, news: str) -> None:
        create_training_job(pipeline)
        assert pipeline.stop(own_event(finding_of(pipeline))) is None
        assert item(pipeline)["status"] == {"S": "requested"}
        assert item(pipeline)["active"] == {"S": "stop"}
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "requested"}, "it is stopping"
        finish_training_job(ACCOUNT, REGION, "mnist-7", 0)
        confirm(pipeline)
        closed = item(pipeline)
        assert closed["status"] == {"S": "confirmed"}
        assert "active" not in closed
        let_pass(pipeline, 10_000)
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "confirmed"}
        assert reported(pipeline, news) == []

    def test_a_job_that_goes_on_is_asked_again_once_and_then_told(
        self, pipeline: Pipeline, news: str, capsys: Any
    ) -> None:
        create_training_job(pipeline)
        requests = []
        pipeline.patch.setattr(
            clients.sagemaker(), "stop_training_job", lambda **job: requests.append(job)
        )
        assert pipeline.stop(own_event(finding_of(pipeline))) is None
        let_pass(pipeline, 595)
        confirm(pipeline)
        assert len(requests) == 1, "it has 600 seconds"
        let_pass(pipeline, 10)
        confirm(pipeline)
        confirm(pipeline)
        assert requests == [{"TrainingJobName": "mnist-7"}] * 2
        assert reported(pipeline, news) == []
        let_pass(pipeline, 601)
        capsys.readouterr()
        confirm(pipeline)
        confirm(pipeline)
        assert capsys.readouterr().out.count('"StopsNotConfirmed":[1.0]') == 1
        (detail,) = reported(pipeline, news)
        assert detail.pop("RequestedAt") == int(item(pipeline)["requested_at"]["N"])
        assert detail == {
            "SchemaVersion": 1,
            "TrainingJobName": "mnist-7",
            "RunId": RUN,
            "DebugOutputUri": ROOT_URI,
            "Platform": "sagemaker",
            "RuleConfigurationName": RULE,
            "Reason": "A number is not finite: seen at step 3 in gradient/conv.weight, "
            "by 1 of 1 rule so far; "
            "gradient/conv.weight: 2 of 4 elements are NaN (worker_0, TRAIN)",
            "NumRequests": 2,
        }
        assert item(pipeline)["status"] == {"S": "late"}
        assert "active" not in item(pipeline)
        assert len(requests) == 2
        assert job_status(pipeline) == "InProgress"

    def test_a_job_that_is_stopping_has_longer(self, pipeline: Pipeline, news: str) -> None:
        create_training_job(pipeline)
        assert pipeline.stop(own_event(finding_of(pipeline))) is None
        assert job_status(pipeline) == "Stopping"
        let_pass(pipeline, 3500)
        confirm(pipeline)
        assert item(pipeline)["num_requests"] == {"N": "1"}, "it may be saving a large model"
        for _ in range(2):
            let_pass(pipeline, 3601)
            confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "late"}
        assert len(reported(pipeline, news)) == 1

    def test_the_time_is_a_setting(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_CONFIRM_S, "60")
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        let_pass(pipeline, 61)
        confirm(pipeline)
        assert item(pipeline)["num_requests"] == {"N": "2"}

    def test_a_request_that_always_fails_is_told_as_well(
        self, pipeline: Pipeline, news: str
    ) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        pipeline.patch.setattr(
            clients.sagemaker(), "stop_training_job", refusal("AccessDeniedException")
        )
        with pytest.raises(ClientError):
            pipeline.stop(own_event(detail))
        for _ in range(2):
            let_pass(pipeline, 601)
            confirm(pipeline)
        assert len(reported(pipeline, news)) == 1
        assert item(pipeline)["status"] == {"S": "late"}

    def test_a_job_that_nobody_registered(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        assert pipeline.stop(native_finding()) is None
        assert item(pipeline, NATIVE_KEY)["platform"] == {"S": "sagemaker"}
        finish_training_job(ACCOUNT, REGION, "mnist-7", 0)
        confirm(pipeline)
        assert item(pipeline, NATIVE_KEY)["status"] == {"S": "confirmed"}

    def test_a_job_that_does_not_exist_has_ended(self, pipeline: Pipeline) -> None:
        with pytest.raises(ClientError):
            pipeline.stop(native_finding())
        confirm(pipeline)
        assert item(pipeline, NATIVE_KEY)["status"] == {"S": "confirmed"}

    def test_without_leave_to_ask_the_end_marker_tells(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        assert pipeline.stop(own_event(finding_of(pipeline))) is None
        pipeline.patch.setattr(
            clients.sagemaker(), "describe_training_job", refusal("AccessDeniedException")
        )
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "requested"}
        pipeline.put_marker()
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "confirmed"}


class TestElsewhere:
    def test_the_end_marker_of_the_run_closes_the_request(self, pipeline: Pipeline) -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        assert item(pipeline)["platform"] == {"S": "loop"}
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "requested"}
        for other in (marker_bytes(NEXT_RUN), b"{", marker_bytes(None)):
            pipeline.put("training_job_end.ts", other)
            confirm(pipeline)
            assert item(pipeline)["status"] == {"S": "requested"}
        pipeline.put_marker()
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "confirmed"}

    def test_so_does_a_newer_run(self, pipeline: Pipeline) -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        pipeline.put("job.json", job_bytes(NEXT_RUN, **LOCAL))
        pipeline.put_step(0, run=NEXT_RUN, sequence=1)
        pipeline.deliver()
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "confirmed"}

    def test_a_signal_that_got_lost_is_written_again(self, pipeline: Pipeline, news: str) -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        first = stop_file(pipeline)
        assert first is not None
        pipeline.aws("s3").delete_object(Bucket="tensors", Key=ROOT + "stop.json")
        let_pass(pipeline, 601)
        confirm(pipeline)
        again = stop_file(pipeline)
        assert again is not None
        assert (again["RunId"], again["Reason"]) == (RUN, first["Reason"])
        let_pass(pipeline, 601)
        confirm(pipeline)
        assert [detail["Platform"] for detail in reported(pipeline, news)] == ["loop"]

    def test_a_job_of_batch(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_PLATFORMS, "batch")
        job = {"platform": "batch", "training_job_arn": BATCH_ARN}
        with Stubber(clients.batch()) as batch:
            for _ in range(2):
                batch.add_response("describe_jobs", described_job(**{TAG: ROOT_URI}))
            batch.add_response("terminate_job", {})
            assert pipeline.stop(own_event(finding_of(pipeline, **job))) is None
            assert item(pipeline)["platform"] == {"S": "batch"}
            batch.add_response("describe_jobs", described_job("RUNNING", **{TAG: ROOT_URI}))
            confirm(pipeline)
            assert item(pipeline)["status"] == {"S": "requested"}
            batch.add_response("describe_jobs", described_job("FAILED", **{TAG: ROOT_URI}))
            confirm(pipeline)
            batch.assert_no_pending_responses()
        assert item(pipeline)["status"] == {"S": "confirmed"}
