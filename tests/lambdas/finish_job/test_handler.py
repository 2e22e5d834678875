"""What SageMaker says of a job, and what becomes of the evaluations of its runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from lambdas.contracts import environment
from lambdas.finish_job.events import parse_job_event
from lambdas.shared import clients
from lambdas.shared.registration import Heartbeat, RegistrationTable
from lambdas.shared.wake import Wake, WakeNotSentError, WakeReason
from tests.lambdas.conftest import Pipeline

RUN = "01JD0000000000000000000001"
RULE = "ExplodingTensor"
ROOT = "mnist-7/debug-output/"
NOTHING = "Nothing to do"


def state_change(
    status: str = "Completed",
    secondary: str | None = None,
    name: Any = "mnist-7",
    time: Any = "2026-11-21T10:00:00Z",
    **changes: Any,
) -> dict[str, Any]:
    """Return an event as SageMaker sends it."""
    return {
        "version": "0",
        "id": "844e2571-85d4-695f-b930-0153b71dcb42",
        "detail-type": "SageMaker Training Job State Change",
        "source": "aws.sagemaker",
        "account": "123456789012",
        "time": time,
        "region": "eu-west-1",
        "resources": [f"arn:aws:sagemaker:eu-west-1:123456789012:training-job/{name}"],
        "detail": {
            "TrainingJobName": name,
            "TrainingJobStatus": status,
            "SecondaryStatus": secondary or status,
        },
        **changes,
    }


@pytest.fixture
def running(pipeline: Pipeline) -> Pipeline:
    """A job of two workers, of which one has not written its second step."""
    pipeline.put_job()
    for worker in ("worker_0", "worker_1"):
        pipeline.put_step(0, worker=worker, workers=2)
    pipeline.put_step(1, worker="worker_0", workers=2)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress"]
    return pipeline


def wakes(pipeline: Pipeline) -> list[Wake]:
    """Return the wakes in the evaluator's queue, and leave them there."""
    return [Wake.of_event(json.loads(record["body"]), {"tensors"}) for record in pipeline.receive()]


def heartbeat() -> Heartbeat | None:
    return RegistrationTable(clients.dynamodb(), "states").heartbeat("mnist-7")


@pytest.mark.parametrize("status", ["Completed", "Failed", "Stopped"])
def test_a_job_that_ended_without_a_marker_is_judged_to_its_last_step(
    running: Pipeline, status: str
) -> None:
    assert running.finish(state_change(status)) == "1 evaluations are due"
    running.deliver()
    assert running.statuses() == ["NoIssuesFound"]
    item = running.state_item()
    assert item["ended"] == {"BOOL": True}
    assert json.loads(item["counts"]["S"])["evaluated"] == 2, "also the incomplete step"


def test_a_finding_in_the_last_steps_is_not_missed(running: Pipeline) -> None:
    running.put_step(2, worker="worker_0", workers=2, num_nan=1)
    running.aws("sqs").purge_queue(QueueUrl=running.queue_url)
    running.finish(state_change("Failed"))
    running.deliver()
    assert running.statuses() == ["IssuesFound"]


def test_an_end_that_the_marker_told_already_changes_nothing(running: Pipeline) -> None:
    running.put_marker()
    running.deliver()
    running.statuses()
    version = running.state_item()["version"]
    for _ in range(2):
        running.finish(state_change())
        running.deliver()
    assert running.state_item()["version"] == version
    assert running.statuses() == []


def test_the_same_event_again_is_no_matter(running: Pipeline) -> None:
    for _ in range(3):
        running.finish(state_change())
    running.deliver()
    assert running.statuses() == ["NoIssuesFound"]


def test_a_rule_that_saw_no_step_is_reported_as_such(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    records = pipeline.receive()
    pipeline.invoke(records)
    pipeline.aws("sqs").purge_queue(QueueUrl=pipeline.queue_url)
    key = {"run": {"S": f"s3://tensors/{ROOT}#{RUN}"}, "rule": {"S": RULE}}
    pipeline.aws("dynamodb").delete_item(TableName="states", Key=key)
    pipeline.statuses()
    pipeline.finish(state_change())
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress", "NoIssuesFound"], "its files are found"


def test_a_rule_that_the_job_did_not_ask_for_says_nothing(pipeline: Pipeline) -> None:
    pipeline.put_job(debug_rule_configurations=({"RuleConfigurationName": "Other"},))
    pipeline.put_step(0)
    pipeline.deliver()
    assert pipeline.finish(state_change()) == "1 evaluations are due"
    pipeline.deliver()
    assert pipeline.statuses() == []


def test_every_rule_is_woken(running: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    url = running.aws("sqs").create_queue(QueueName="other")["QueueUrl"]
    urls = {RULE: running.queue_url, "Other": url}
    monkeypatch.setenv(environment.RULE_QUEUE_URLS, json.dumps(urls))
    running.forget()
    assert running.finish(state_change()) == "2 evaluations are due"
    (message,) = running.aws("sqs").receive_message(QueueUrl=url)["Messages"]
    assert Wake.of_event(json.loads(message["Body"]), {"tensors"}) == Wake(
        f"s3://tensors/{ROOT}", RUN, WakeReason.ENDED
    )


class TestWhoIsMeant:
    @pytest.mark.parametrize(
        "event",
        [
            state_change(name="another"),
            state_change(source="stepwatch.debugger"),
            state_change(source="aws.s3"),
            state_change(source=None),
            state_change(**{"detail-type": "SageMaker Processing Job State Change"}),
            state_change(account="210987654321"),
            state_change(region="us-east-1"),
            state_change(detail=None),
            state_change(detail=[]),
            state_change(name=None),
            state_change(name="x" * 300),
            state_change(name="\ud800"),
            state_change(time=None),
            state_change(time="yesterday"),
            state_change(status=5),
            {},
            [],
            None,
            "Completed",
        ],
    )
    def test_other_events_wake_nobody(self, running: Pipeline, event: Any) -> None:
        assert running.finish(event) == NOTHING
        assert wakes(running) == []

    @pytest.mark.parametrize("status", ["InProgress", "Stopping", "completed", ""])
    def test_a_job_that_still_runs_is_not_judged(self, running: Pipeline, status: str) -> None:
        assert running.finish(state_change(status, "Training")) == NOTHING
        assert wakes(running) == []

    def test_a_foreign_folder_does_not_speak_for_the_job(self, pipeline: Pipeline) -> None:
        pipeline.put_job(root="playground/x/")
        pipeline.put_step(0, root="playground/x/")
        pipeline.deliver()
        assert pipeline.finish(state_change()) == NOTHING

    def test_a_job_of_another_platform_is_not_sagemakers(self, pipeline: Pipeline) -> None:
        pipeline.put_job(platform="local", training_job_arn=None)
        pipeline.put_step(0)
        pipeline.deliver()
        assert pipeline.finish(state_change()) == NOTHING

    def test_a_bucket_that_is_watched_no_more_is_left_out(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(environment.TENSOR_BUCKET_NAMES, "another")
        running.forget()
        assert running.finish(state_change()) == NOTHING

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=8),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
        ),
        st.sampled_from(["source", "detail-type", "detail", "time"]),
    )
    def test_whatever_json_it_is_nothing_is_raised(self, value: Any, name: str) -> None:
        assert parse_job_event(state_change(**{name: value})) is None
        assert parse_job_event(value) is None


class TestSpotTraining:
    def test_an_interruption_is_no_end_but_noted(self, running: Pipeline) -> None:
        assert running.finish(state_change("InProgress", "Interrupted")) == NOTHING
        assert wakes(running) == []
        sign = heartbeat()
        assert sign is not None
        assert sign.is_interrupted

    def test_the_note_goes_when_the_job_goes_on(self, running: Pipeline) -> None:
        running.finish(state_change("InProgress", "Interrupted"))
        running.finish(state_change("InProgress", "Starting", time="2026-11-21T11:00:00Z"))
        sign = heartbeat()
        assert sign is not None
        assert not sign.is_interrupted

    def test_events_may_come_in_any_order(self, running: Pipeline) -> None:
        running.finish(state_change("InProgress", "Training", time="2026-11-21T11:00:00Z"))
        running.finish(state_change("InProgress", "Interrupted"))
        sign = heartbeat()
        assert sign is not None
        assert not sign.is_interrupted

    def test_a_registration_that_is_written_again_keeps_the_note(self, running: Pipeline) -> None:
        running.finish(state_change("InProgress", "Interrupted"))
        running.forget()
        running.put_step(2, worker="worker_0", workers=2)
        running.deliver()
        sign = heartbeat()
        assert sign is not None
        assert sign.is_interrupted

    def test_a_job_that_is_not_registered_leaves_no_note(self, pipeline: Pipeline) -> None:
        assert pipeline.finish(state_change("InProgress", "Interrupted")) == NOTHING
        assert heartbeat() is None

    def test_an_end_that_follows_is_an_end(self, running: Pipeline) -> None:
        running.finish(state_change("InProgress", "Interrupted"))
        running.finish(state_change("Stopped", "MaxWaitTimeExceeded"))
        running.deliver()
        assert running.statuses() == ["NoIssuesFound"]


class TestWhatFails:
    def test_a_queue_that_refuses_is_told_so_that_the_event_comes_again(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = {"Failed": [{"Id": "0", "Code": "InternalError"}]}
        monkeypatch.setattr(clients.sqs(), "send_message_batch", lambda **_: refused)
        with pytest.raises(WakeNotSentError):
            running.finish(state_change())

    def test_so_is_a_table_that_does_not_answer(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def update_item(**_: Any) -> Any:
            error = {"Error": {"Code": "InternalServerError", "Message": "try again"}}
            raise ClientError(error, "UpdateItem")

        monkeypatch.setattr(clients.dynamodb(), "update_item", update_item)
        with pytest.raises(ClientError):
            running.finish(state_change("InProgress", "Interrupted"))

    def test_an_unusable_environment_is_reported_at_once(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(environment.RULE_QUEUE_URLS, "[]")
        running.forget()
        with pytest.raises(ValueError, match="RULE_QUEUE_URLS"):
            running.finish(state_change())
