"""Which findings stop a job: the deployment's policy, how many rules must agree, and what the job
itself asks for in its Actions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from hook_layer.storage.base import StorageError
from lambdas.contracts import environment
from lambdas.shared import clients
from lambdas.shared.settings import SettingsError, StopJobSettings
from tests.lambdas.conftest import Pipeline, refusal
from tests.lambdas.stop_job.jobs import (
    LOCAL,
    LOOP,
    MAIL,
    NOBODY,
    NOTHING_TO_DO,
    RULE,
    RUN,
    STOP,
    create_training_job,
    finding_of,
    job_status,
    native_finding,
    own_event,
    state_change,
    stop_file,
    stopped_by,
)


def rules(**actions: Any) -> tuple[dict[str, Any], ...]:
    """Return configurations of rules, each with its `action_json`, or None for none."""
    return tuple(
        {
            "RuleConfigurationName": name,
            "RuleParameters": {"rule_to_invoke": RULE}
            | ({} if action is None else {"action_json": action}),
        }
        for name, action in actions.items()
    )


def finding_of_another_rule(pipeline: Pipeline, rule: str = "Other") -> dict[str, Any]:
    """Let an evaluator of another rule find an issue in the same run; return its event's detail."""
    pipeline.patch.setenv(environment.RULE_CONFIGURATION_NAME, rule)
    pipeline.forget()
    pipeline.put_step(4, sequence=2, run=RUN, num_nan=2)
    pipeline.deliver()
    *_, finding = pipeline.announced()
    assert finding["DebugRuleEvaluationStatuses"][0]["RuleConfigurationName"] == rule
    return finding


class TestTheDeploymentsPolicy:
    def test_observed_rules_never_stop(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_OBSERVED_RULES, f"Another, {RULE}")
        detail = finding_of(pipeline, **LOCAL)
        assert stopped_by(pipeline, own_event(detail)) == NOBODY

    def test_several_rules_must_agree(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        first = finding_of(pipeline, **LOCAL)
        assert pipeline.stop(own_event(first)) == NOTHING_TO_DO
        assert pipeline.stop(own_event(first)) == NOTHING_TO_DO, "one rule, told twice"
        second = finding_of_another_rule(pipeline)
        assert pipeline.stop(own_event(second)) is None
        signal = stop_file(pipeline)
        assert signal is not None
        assert signal["RuleConfigurationName"] == "Other", "the finding that was enough"

    def test_a_damaged_state_of_another_rule_does_not_count(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        first = finding_of(pipeline, **LOCAL)
        damaged = {"run": pipeline.state_item()["run"], "rule": {"S": "Bare"}}
        pipeline.aws("dynamodb").put_item(TableName="states", Item=damaged)
        assert pipeline.stop(own_event(first)) == NOTHING_TO_DO
        second = finding_of_another_rule(pipeline)
        assert stopped_by(pipeline, own_event(second)) == LOOP

    def test_rules_that_do_not_stop_jobs_do_not_count(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        pipeline.patch.setenv(environment.STOP_OBSERVED_RULES, "Other")
        first = finding_of(pipeline, **LOCAL)
        second = finding_of_another_rule(pipeline)
        assert pipeline.stop(own_event(second)) == NOTHING_TO_DO
        assert stopped_by(pipeline, own_event(first)) == NOBODY

    def test_native_findings_are_counted_by_rule(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        assert pipeline.stop(native_finding()) == NOTHING_TO_DO
        twice = state_change((RULE, "IssuesFound"), (RULE, "IssuesFound"), ("B", "Error"))
        assert stopped_by(pipeline, twice) == NOBODY
        assert pipeline.stop(state_change((RULE, "IssuesFound"), ("B", "IssuesFound"))) is None
        assert job_status(pipeline) == "Stopping"

    def test_a_native_finding_and_one_of_ours_are_two(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        finding_of(pipeline)
        assert pipeline.stop(state_change(("Native", "IssuesFound"))) is None
        assert job_status(pipeline) == "Stopping"

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (environment.STOP_MIN_RULES, "none"),
            (environment.STOP_PLATFORMS, "batch,kubernetes"),
            (environment.STOP_CONFIRM_S, "soon"),
        ],
    )
    def test_settings_that_make_no_sense_are_named(self, name: str, value: str) -> None:
        variables = {
            environment.STATE_TABLE_NAME: "states",
            environment.TENSOR_BUCKET_NAMES: "tensors",
            name: value,
        }
        with pytest.raises(SettingsError, match=name):
            StopJobSettings.from_environment(variables)


class TestSeverity:
    """Under the severity `fatal`, only findings from which a run does not recover stop a job."""

    @pytest.fixture(autouse=True)
    def severity(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_SEVERITY, "fatal")
        pipeline.forget()

    @pytest.mark.parametrize(("rule", "stopped"), [(RULE, NOBODY), ("NonFinite", LOOP)])
    def test_only_a_fatal_finding_stops_a_job(
        self, pipeline: Pipeline, rule: str, stopped: frozenset[str]
    ) -> None:
        pipeline.patch.setenv(environment.RULE_PARAMETERS, json.dumps({"rule_to_invoke": rule}))
        pipeline.forget()
        detail = finding_of(pipeline, **LOCAL)
        assert stopped_by(pipeline, own_event(detail)) == stopped

    def test_a_job_that_asks_to_be_stopped_by_a_rule_is_stopped_by_any_finding(
        self, pipeline: Pipeline
    ) -> None:
        detail = finding_of(pipeline, **LOCAL, actions=(STOP,))
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    def test_of_a_native_finding_the_severity_is_unknown(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        assert stopped_by(pipeline, native_finding()) == NOBODY
        assert pipeline.stop(native_finding(source=None)) is None  # a direct call
        assert job_status(pipeline) == "Stopping"

    def test_only_fatal_findings_agree(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        pipeline.forget()
        finding_of(pipeline, **LOCAL)
        fatal = json.dumps({"rule_to_invoke": "NonFinite"})
        pipeline.patch.setenv(environment.RULE_PARAMETERS, fatal)
        detail = finding_of_another_rule(pipeline)
        assert stopped_by(pipeline, own_event(detail)) == NOBODY


class TestRulesOfTheJobsOwn:
    """Findings of a rule that is not deployed: the job has configured it itself."""

    @pytest.fixture(autouse=True)
    def policy(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_RULES, "NonFinite")
        pipeline.patch.setenv(environment.DEPLOYED_RULES, "NonFinite,Overfit")
        pipeline.forget()

    @pytest.mark.parametrize(
        "asked",
        [
            {"actions": (STOP,)},
            {"debug_rule_configurations": rules(**{RULE: json.dumps(STOP)})},
        ],
    )
    def test_stop_it_where_its_actions_say_so(
        self, pipeline: Pipeline, asked: dict[str, Any]
    ) -> None:
        assert stopped_by(pipeline, own_event(finding_of(pipeline, **LOCAL, **asked))) == LOOP

    def test_stop_it_when_they_are_sagemakers(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.put_job(actions=(STOP,))
        pipeline.put_step(0)
        pipeline.deliver()
        assert pipeline.stop(native_finding()) is None
        assert job_status(pipeline) == "Stopping"

    @pytest.mark.parametrize(
        "asked",
        [
            {},
            {"actions": (MAIL,)},
            {"actions": (STOP,), "debug_rule_configurations": rules(**{RULE: json.dumps(MAIL)})},
        ],
    )
    def test_do_not_without(self, pipeline: Pipeline, asked: dict[str, Any]) -> None:
        detail = finding_of(pipeline, **LOCAL, **asked)
        assert stopped_by(pipeline, own_event(detail)) == NOBODY

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (environment.STOP_POLICY, "observe"),
            (environment.STOP_OBSERVED_RULES, RULE),
            (environment.DEPLOYED_RULES, ""),
            (environment.DEPLOYED_RULES, f"NonFinite,{RULE}"),
            (environment.STOP_MIN_RULES, "2"),
        ],
    )
    def test_the_deployers_word_counts_all_the_same(
        self, pipeline: Pipeline, name: str, value: str
    ) -> None:
        pipeline.patch.setenv(name, value)
        pipeline.forget()
        detail = finding_of(pipeline, **LOCAL, actions=(STOP,))
        assert stopped_by(pipeline, own_event(detail)) == NOBODY


class TestTheJobsActions:
    @pytest.mark.parametrize("actions", [(STOP,), (MAIL, {"name": "StopTraining"})])
    def test_a_job_that_asks_to_be_stopped_is_stopped(
        self, pipeline: Pipeline, actions: Any
    ) -> None:
        detail = finding_of(pipeline, **LOCAL, actions=actions)
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    @pytest.mark.parametrize(
        "actions",
        [
            (MAIL,),
            ({"name": "stoptraining", "training_job_prefix": "somebody-elses"},),
            ({"name": 5}, {"training_job_prefix": "mnist-7"}),
        ],
    )
    def test_a_job_that_asks_for_something_else_goes_on(
        self, pipeline: Pipeline, actions: Any
    ) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline, actions=actions)
        for event in (own_event(detail), native_finding(), native_finding(source=None)):
            assert stopped_by(pipeline, event) == NOBODY

    def test_an_action_never_stops_the_other_job_that_it_names(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        create_training_job(pipeline, "another")
        stop_another = {"name": "stoptraining", "training_job_prefix": "another"}
        detail = finding_of(pipeline, actions=(stop_another,))
        assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO
        assert {job_status(pipeline), job_status(pipeline, "another")} == {"InProgress"}

    @pytest.mark.parametrize(
        ("own", "others", "is_stopped"),
        [
            (json.dumps(STOP), None, True),
            (json.dumps([MAIL, {**STOP, "training_job_prefix": "MNIST"}]), None, True),
            (json.dumps(STOP).replace('"', '\\"'), None, True),  # as the client serialises it
            (json.dumps(MAIL), json.dumps(STOP), False),
            (None, json.dumps(STOP), False),
            ("{no json", None, False),
            (None, None, True),
        ],
    )
    def test_a_rule_has_actions_of_its_own(
        self, pipeline: Pipeline, own: str | None, others: str | None, is_stopped: bool
    ) -> None:
        configured = rules(**{RULE: own, "Other": others})
        detail = finding_of(pipeline, **LOCAL, debug_rule_configurations=configured)
        assert (pipeline.stop(own_event(detail)) is None) is is_stopped
        assert (stop_file(pipeline) is not None) is is_stopped

    def test_the_jobs_actions_are_those_of_a_rule_without(self, pipeline: Pipeline) -> None:
        configured = rules(**{RULE: None, "Other": json.dumps(MAIL)})
        job = {**LOCAL, "debug_rule_configurations": configured, "actions": (STOP,)}
        assert pipeline.stop(own_event(finding_of(pipeline, **job))) is None

    def test_rules_without_the_action_do_not_count_among_those_that_agree(
        self, pipeline: Pipeline
    ) -> None:
        pipeline.patch.setenv(environment.STOP_MIN_RULES, "2")
        configured = rules(**{RULE: json.dumps(STOP), "Other": json.dumps(MAIL)})
        job = {**LOCAL, "debug_rule_configurations": configured}
        first = finding_of(pipeline, **job)
        finding_of_another_rule(pipeline)
        assert stopped_by(pipeline, own_event(first)) == NOBODY

    def test_policy_observe_is_stronger(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_POLICY, "observe")
        detail = finding_of(pipeline, **LOCAL, actions=(STOP,))
        assert stopped_by(pipeline, own_event(detail)) == NOBODY

    def test_so_does_one_that_the_function_may_not_read(self, pipeline: Pipeline) -> None:
        detail = finding_of(pipeline, **LOCAL, actions=(MAIL,))
        get_object = clients.s3().get_object

        def refuse(**request: Any) -> Any:
            if request["Key"].endswith("job.json"):
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetObject")
            return get_object(**request)

        pipeline.patch.setattr(clients.s3(), "get_object", refuse)
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    def test_one_that_cannot_be_read_now_is_read_later(self, pipeline: Pipeline) -> None:
        detail = finding_of(pipeline, **LOCAL, actions=(MAIL,))

        with pipeline.patch.context() as patch:
            patch.setattr(clients.s3(), "get_object", refusal("SlowDown"))
            with pytest.raises(StorageError):
                pipeline.stop(own_event(detail))
        assert stop_file(pipeline) is None
        assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO

    def test_a_job_file_that_cannot_be_used_leaves_it_to_the_policy(
        self, pipeline: Pipeline
    ) -> None:
        detail = finding_of(pipeline, **LOCAL, actions=(MAIL,))
        pipeline.put("job.json", b"{")
        assert stopped_by(pipeline, own_event(detail)) == LOOP
