"""The function that stops jobs, over AWS in moto with SageMaker's part of it added."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from infra.local.moto_patches.training_jobs import finish_training_job
from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline, refusal
from tests.lambdas.stop_job.jobs import (
    ACCOUNT,
    JOB,
    LOOP,
    NEXT_RUN,
    NOBODY,
    NOTHING_TO_DO,
    REGION,
    RULE,
    RUN,
    SHAPES,
    create_training_job,
    finding_of,
    job_status,
    native_finding,
    own_event,
    state_change,
    stop_file,
    stopped_by,
)


@pytest.fixture
def no_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The AWS calls made so far."""
    calls: list[str] = []
    make_api_call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation_name: str, api_params: Any) -> Any:
        calls.append(operation_name)
        return make_api_call(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return calls


class TestNothingToDo:
    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize(
        "statuses",
        [
            [],
            None,
            "IssuesFound",
            [None],
            [{"RuleConfigurationName": RULE}],
            [{"RuleConfigurationName": RULE, "RuleEvaluationStatus": "NoIssuesFound"}],
            [{"RuleConfigurationName": RULE, "RuleEvaluationStatus": "Error"}],
        ],
    )
    def test_without_a_finding(
        self, pipeline: Pipeline, no_calls: list[str], statuses: Any, whole: bool
    ) -> None:
        event = state_change(DebugRuleEvaluationStatuses=statuses)
        assert pipeline.stop(event if whole else event["detail"]) == NOTHING_TO_DO
        assert no_calls == []

    def test_without_statuses_or_anything_else(
        self, pipeline: Pipeline, no_calls: list[str]
    ) -> None:
        event = state_change()
        del event["detail"]["DebugRuleEvaluationStatuses"]
        assert pipeline.stop(event) == NOTHING_TO_DO
        assert pipeline.stop({"detail": {}}) == NOTHING_TO_DO
        assert pipeline.stop({}) == NOTHING_TO_DO
        assert no_calls == []

    def test_needs_no_environment(self, pipeline: Pipeline) -> None:
        pipeline.patch.delenv("STEPWATCH_STATE_TABLE_NAME")
        assert pipeline.stop(state_change()) == NOTHING_TO_DO

    def test_other_rules_than_those_that_stop(
        self, pipeline: Pipeline, no_calls: list[str]
    ) -> None:
        pipeline.patch.setenv("STEPWATCH_STOP_RULES", "VanishingGradient, LossNotDecreasing")
        detail = {**native_finding()["detail"], "DebugOutputUri": "s3://b/mnist/", "RunId": "r"}
        assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO
        assert no_calls == []

    def test_policy_observe(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.patch.setenv("STEPWATCH_STOP_POLICY", "observe")
        assert stopped_by(pipeline, native_finding()) == NOBODY


class TestNativeEvents:
    @pytest.mark.parametrize(
        ("name", "value"),
        [("STEPWATCH_STOP_RULES", "LossNotDecreasing"), ("STEPWATCH_STOP_OBSERVED_RULES", RULE)],
    )
    def test_only_of_rules_that_may_stop_jobs(
        self, pipeline: Pipeline, name: str, value: str
    ) -> None:
        create_training_job(pipeline)
        pipeline.patch.setenv(name, value)
        assert stopped_by(pipeline, native_finding()) == NOBODY

    def test_of_a_rule_that_is_not_deployed_stop_no_job_that_does_not_ask(
        self, pipeline: Pipeline
    ) -> None:
        create_training_job(pipeline)
        pipeline.patch.setenv("STEPWATCH_STOP_RULES", "NonFinite")
        pipeline.patch.setenv("STEPWATCH_DEPLOYED_RULES", "NonFinite,Overfit")
        assert stopped_by(pipeline, native_finding()) == NOBODY

    def test_a_direct_call_stops_whatever_its_rule_is_called(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.patch.setenv("STEPWATCH_STOP_RULES", "LossNotDecreasing")
        assert pipeline.stop(native_finding(source=None)) is None
        assert job_status(pipeline) == "Stopping"

    @pytest.mark.parametrize("source", ["aws.sagemaker", None])
    def test_stop_a_job_that_nobody_registered(
        self, pipeline: Pipeline, source: str | None
    ) -> None:
        create_training_job(pipeline)
        assert stopped_by(pipeline, native_finding(source=source)) == JOB

    def test_a_bare_detail_from_the_console(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        assert pipeline.stop(native_finding()["detail"]) is None
        assert job_status(pipeline) == "Stopping"

    def test_one_finding_among_other_statuses(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        event = state_change(("A", "NoIssuesFound"), ("B", "IssuesFound"), ("C", "InProgress"))
        assert pipeline.stop(event) is None
        assert job_status(pipeline) == "Stopping"

    def test_signal_the_registered_run(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.put_job()
        pipeline.put_step(0)
        pipeline.deliver()
        assert pipeline.stop(native_finding()) is None
        assert job_status(pipeline) == "Stopping"
        signal = stop_file(pipeline)
        assert signal is not None
        assert signal["RunId"] == RUN
        assert signal["RuleConfigurationName"] == RULE
        assert "ExplodingTensor" in signal["Reason"]

    def test_do_not_reach_a_job_elsewhere_of_the_same_name(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.put_job(root="mnist-7/", platform="local", training_job_arn=None)
        pipeline.put_step(0, root="mnist-7/")
        pipeline.deliver()
        assert pipeline.stop(native_finding()) is None
        assert job_status(pipeline) == "Stopping"
        assert stop_file(pipeline, "mnist-7/") is None

    def test_only_registered_jobs_when_the_operator_says_so(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv("STEPWATCH_STOP_POLICY", "watched")
        create_training_job(pipeline)
        assert stopped_by(pipeline, native_finding()) == NOBODY
        pipeline.put_job()
        pipeline.put_step(0)
        pipeline.deliver()
        assert pipeline.stop(native_finding()) is None
        assert job_status(pipeline) == "Stopping"

    @pytest.mark.parametrize("exit_code", [0, 1, None])
    def test_a_job_that_has_ended_counts_as_stopped(
        self, pipeline: Pipeline, exit_code: int | None
    ) -> None:
        create_training_job(pipeline)
        if exit_code is None:
            pipeline.stop(native_finding())
        finish_training_job(ACCOUNT, REGION, "mnist-7", exit_code or 0)
        assert job_status(pipeline) in {"Completed", "Failed", "Stopped"}
        assert pipeline.stop(native_finding()) is None

    @pytest.mark.parametrize("status", ["Completed", "Failed", "Stopped", "Stopping", "Deleting"])
    def test_every_refusal_because_the_job_ends_is_success(
        self, pipeline: Pipeline, status: str
    ) -> None:
        message = f"The request was rejected because the training job is in status {status}."

        detail = finding_of(pipeline)
        pipeline.patch.setattr(
            clients.sagemaker(), "stop_training_job", refusal("ValidationException", message)
        )
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    def test_a_job_that_does_not_exist_is_an_error(self, pipeline: Pipeline) -> None:
        with pytest.raises(ClientError, match="not found"):
            pipeline.stop(native_finding())

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("ThrottlingException", "Rate exceeded"),
            ("ValidationException", "The job is in status Pending."),
            ("AccessDeniedException", "the training job is in status Stopped."),
        ],
    )
    def test_every_other_error_is_raised_and_nothing_signalled(
        self, pipeline: Pipeline, code: str, message: str
    ) -> None:
        finding_of(pipeline)

        pipeline.patch.setattr(clients.sagemaker(), "stop_training_job", refusal(code, message))
        with pytest.raises(ClientError, match=code):
            pipeline.stop(native_finding())
        assert stop_file(pipeline) is None, "the API first: else the job would become Failed"


class TestOwnEvents:
    def test_a_confirmed_finding_stops_job_and_loop(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        assert pipeline.stop(own_event(detail)) is None
        assert job_status(pipeline) == "Stopping"
        signal = stop_file(pipeline)
        assert signal is not None
        assert signal["RunId"] == RUN
        assert signal["Evidence"] == detail["Evidence"]
        assert signal["RuleConfigurationName"] == "ExplodingTensor"
        assert signal["Reason"] == (
            "A number is not finite: seen at step 3 in gradient/conv.weight, by 1 of 1 "
            "rule so far; gradient/conv.weight: 2 of 4 elements are NaN (worker_0, TRAIN)"
        )

    def test_the_same_event_again_keeps_the_first_reason(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        assert pipeline.stop(own_event(detail)) is None
        first = stop_file(pipeline)
        pipeline.put_step(4, sequence=2, num_nan=4)
        pipeline.deliver()
        assert pipeline.stop(own_event(detail)) is None
        assert stop_file(pipeline) == first

    def test_a_job_elsewhere_gets_the_signal_alone(
        self, pipeline: Pipeline, no_calls: list[str]
    ) -> None:
        detail = finding_of(pipeline, platform="local", training_job_arn=None)
        assert stopped_by(pipeline, own_event(detail)) == LOOP
        assert "StopTrainingJob" not in no_calls

    def test_jobs_of_one_name_in_two_folders_are_told_apart(self, pipeline: Pipeline) -> None:
        job = {"platform": "local", "training_job_arn": None, "training_job_name": "nightly"}
        pipeline.put_job(root="bob/nightly/", **job)
        pipeline.put_step(0, root="bob/nightly/")
        pipeline.put_job(root="alice/nightly/", **job)
        pipeline.put_step(0, root="alice/nightly/", num_nan=1)
        pipeline.deliver()
        finding = next(d for d in pipeline.announced() if "Evidence" in d)
        assert pipeline.stop(own_event(finding)) is None
        assert stop_file(pipeline, "alice/nightly/") is not None
        assert stop_file(pipeline, "bob/nightly/") is None
        event = native_finding(source=None, TrainingJobName="nightly")
        with pytest.raises(ValueError, match=r"2 jobs are called 'nightly'.*DebugOutputUri"):
            pipeline.stop(event)

    @pytest.mark.parametrize(
        "changes",
        [
            {"TrainingJobName": "another"},
            {"DebugOutputUri": "s3://tensors/elsewhere/"},
            {"DebugOutputUri": None},
            {"RunId": NEXT_RUN},
            {"RunId": None},
            {"DebugRuleEvaluationStatuses": [{"RuleConfigurationName": "VanishingGradient"}]},
        ],
    )
    def test_what_the_table_does_not_confirm_stops_nothing(
        self, pipeline: Pipeline, changes: dict[str, Any]
    ) -> None:
        create_training_job(pipeline)
        create_training_job(pipeline, "another")
        detail = finding_of(pipeline)
        for status in changes.get("DebugRuleEvaluationStatuses", []):
            status["RuleEvaluationStatus"] = "IssuesFound"
        assert pipeline.stop(own_event(detail, **changes)) == NOTHING_TO_DO
        assert {job_status(pipeline), job_status(pipeline, "another")} == {"InProgress"}
        assert stop_file(pipeline) is None
        assert stop_file(pipeline, "elsewhere/") is None

    def test_a_forged_verdict_stops_nothing(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.put_job()
        pipeline.put_step(0)
        pipeline.deliver()
        (detail,) = pipeline.announced()
        detail["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] = "IssuesFound"
        assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO
        event = {**own_event(detail), "source": "somebody.else"}
        assert stopped_by(pipeline, event) == NOBODY

    def test_a_finding_about_an_earlier_run_does_not_stop_the_next(
        self, pipeline: Pipeline
    ) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        pipeline.put_job(NEXT_RUN)
        pipeline.put_step(0, run=NEXT_RUN, sequence=1)
        pipeline.deliver()
        assert stopped_by(pipeline, own_event(detail)) == NOBODY

    def test_the_next_run_gets_a_signal_of_its_own(self, pipeline: Pipeline) -> None:
        job = {"platform": "local", "training_job_arn": None}
        assert pipeline.stop(own_event(finding_of(pipeline, **job))) is None
        assert pipeline.stop(own_event(finding_of(pipeline, NEXT_RUN, **job))) is None
        signal = stop_file(pipeline)
        assert signal is not None
        assert signal["RunId"] == NEXT_RUN

    def test_a_job_that_opted_out_goes_on(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline, opt_out_of_stop=True)
        assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO
        assert stopped_by(pipeline, native_finding()) == NOBODY

    def test_no_signal_outside_the_watched_buckets(self, pipeline: Pipeline) -> None:
        detail = finding_of(pipeline, platform="local")
        pipeline.patch.setenv("STEPWATCH_TENSOR_BUCKET_NAMES", "another-bucket")
        pipeline.forget()
        assert pipeline.stop(own_event(detail)) is None
        assert stop_file(pipeline) is None


class TestOtherShapes:
    """Whatever JSON comes, nothing is raised, which would only bring it back twice."""

    @pytest.mark.parametrize("source", ["aws.sagemaker", "stepwatch.debugger", None])
    @pytest.mark.parametrize("name", ["TrainingJobName", "DebugRuleEvaluationStatuses"])
    def test_in_place_of_what_is_needed(
        self, pipeline: Pipeline, no_calls: list[str], name: str, source: str | None
    ) -> None:
        for shape in SHAPES:
            if (name, shape) != ("TrainingJobName", "text"):  # that is a name
                event = native_finding(source=source, **{name: shape})
                assert pipeline.stop(event) == NOTHING_TO_DO
        assert no_calls == []

    def test_in_place_of_the_event_or_its_detail(
        self, pipeline: Pipeline, no_calls: list[str]
    ) -> None:
        for shape in SHAPES:
            assert pipeline.stop(shape) == NOTHING_TO_DO
            assert pipeline.stop({"detail": shape}) == NOTHING_TO_DO
            assert pipeline.stop({**native_finding(), "detail": shape}) == NOTHING_TO_DO
        assert no_calls == []

    @pytest.mark.parametrize("name", ["DebugOutputUri", "RunId", "RuleConfigurationName"])
    def test_in_an_event_that_anybody_may_send(self, pipeline: Pipeline, name: str) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        changed = detail["DebugRuleEvaluationStatuses"][0] if name not in detail else detail
        for shape in SHAPES:
            changed[name] = shape
            assert stopped_by(pipeline, own_event(detail)) == NOBODY

    def test_in_place_of_the_source(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        for shape in SHAPES[1:]:  # an event without a source is a direct invocation
            assert stopped_by(pipeline, {**native_finding(), "source": shape}) == NOBODY


def test_a_finding_without_a_job_is_reported(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    assert pipeline.stop(native_finding(TrainingJobName=None)) == NOTHING_TO_DO
    assert "no TrainingJobName" in caplog.text
