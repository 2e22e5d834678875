"""Many jobs that were asked to stop are looked after, whatever happens to one of them."""

from __future__ import annotations

from typing import Any

from infra.local.moto_patches.training_jobs import finish_training_job
from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline, refusal
from tests.lambdas.stop_job.jobs import (
    ACCOUNT,
    LOCAL,
    REGION,
    create_training_job,
    finding_of,
    native_finding,
    own_event,
)
from tests.lambdas.stop_job.test_confirmation import DUE, confirm, item, let_pass, reported


class TestManyJobs:
    def test_the_same_finding_again_keeps_the_request(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        assert pipeline.stop(own_event(detail)) is None
        first = item(pipeline)
        assert pipeline.stop(own_event(detail)) is None
        assert item(pipeline) == first
        finish_training_job(ACCOUNT, REGION, "mnist-7", 0)
        confirm(pipeline)
        closed = item(pipeline)
        assert pipeline.stop(own_event(detail)) is None
        assert item(pipeline) == closed, "a late duplicate opens nothing again"

    def test_the_trouble_of_one_does_not_hide_the_others(
        self, pipeline: Pipeline, capsys: Any
    ) -> None:
        create_training_job(pipeline, "another")
        event = native_finding(TrainingJobName="another")
        assert pipeline.stop(event) is None
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None

        pipeline.patch.setattr(
            clients.sagemaker(),
            "describe_training_job",
            refusal("ThrottlingException", "Rate exceeded"),
        )
        pipeline.put_marker()
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "confirmed"}
        other = {"run": {"S": "stop#another"}, "rule": {"S": "#"}}
        assert item(pipeline, other)["status"] == {"S": "requested"}
        assert "StopChecksFailed" in capsys.readouterr().out

    def test_with_too_little_time_it_is_left_to_the_next_call(self, pipeline: Pipeline) -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        pipeline.put_marker()
        confirm(pipeline, remaining_ms=10_000)
        assert item(pipeline)["status"] == {"S": "requested"}
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "confirmed"}

    def test_a_bus_that_refuses_is_told_again(self, pipeline: Pipeline, news: str) -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        let_pass(pipeline, 601)
        confirm(pipeline)
        let_pass(pipeline, 601)
        refusal = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure"}]}
        with pipeline.patch.context() as patch:
            patch.setattr(clients.eventbridge(), "put_events", lambda **_: refusal)
            confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "requested"}
        confirm(pipeline)
        assert item(pipeline)["status"] == {"S": "late"}
        assert len(reported(pipeline, news)) == 1

    def test_a_forged_event_does_what_the_schedule_does(
        self, pipeline: Pipeline, news: str
    ) -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        before = item(pipeline)
        forged = {**DUE, "source": "x", "detail": {"TrainingJobName": "mnist-7", "Force": True}}
        assert pipeline.stop(forged) is None
        assert item(pipeline) == before
        assert reported(pipeline, news) == []
