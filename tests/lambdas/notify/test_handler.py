"""The function that tells people, over AWS in moto."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.client import BaseClient

from hook_layer.format.paths import index_key
from lambdas.contracts import environment
from tests.lambdas.conftest import Pipeline
from tests.lambdas.notify.conftest import Mailbox
from tests.lambdas.stop_job.jobs import (
    LOCAL,
    ROOT,
    RULE,
    RUN,
    SHAPES,
    finding_of,
    own_event,
    state_change,
)

CONSOLE = "https://eu-west-1.console.aws.amazon.com"
LOG_GROUP = "#logsV2:log-groups/log-group/$252Faws$252Flambda$252Fstepwatch-explosion"
NEXT_RUN = "01JD0000000000000000000002"
OF_PACK = {"RuleConfigurationName": RULE, "Pack": "recommended"}


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {name: reported["Value"] for name, reported in message["MessageAttributes"].items()}


def nothing_to_evaluate(pipeline: Pipeline) -> dict[str, Any]:
    """Let a job end of which nothing was saved; return the detail of the event that tells it."""
    pipeline.put_job()
    pipeline.put_marker()
    pipeline.deliver()
    *_, error = pipeline.announced()
    return error


class TestOurEvents:
    def test_a_finding_says_what_where_and_what_to_do(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        groups = json.dumps({RULE: "/aws/lambda/stepwatch-explosion"})
        pipeline.patch.setenv(environment.RULE_LOG_GROUPS, groups)
        mailbox.tell(own_event(finding_of(pipeline)))
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: ExplodingTensor found an issue in mnist-7"
        assert attributes(message) == {
            "RuleConfigurationName": RULE,
            "RuleEvaluationStatus": "IssuesFound",
            "TrainingJobName": "mnist-7",
        }
        lines = message["Message"].splitlines()
        for line in (
            "ExplodingTensor found an issue in the training job mnist-7.",
            "What was found: gradient/conv.weight: 2 of 4 elements are NaN (worker_0, TRAIN)",
            "Seen at step 3",
            f"Run: {RUN}",
            f"Tensors: s3://tensors/{ROOT}",
            f"Job: {CONSOLE}/sagemaker/home?region=eu-west-1#/jobs/mnist-7",
            f"Log of the rule: {CONSOLE}/cloudwatch/home?region=eu-west-1{LOG_GROUP}",
            '{"RuleConfigurationName": [{"anything-but": ["ExplodingTensor"]}]}',
        ):
            assert line in lines
        assert any(line.startswith("Evidence: ") and "threshold" in line for line in lines)
        assert any(line.startswith("What to try: ") for line in lines)

    def test_a_rule_that_the_job_configured_has_its_log_with_others(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        groups = {"Other": "other", "#job-rules": "stepwatch-job-rules"}
        pipeline.patch.setenv(environment.RULE_LOG_GROUPS, json.dumps(groups))
        mailbox.tell(own_event(finding_of(pipeline)))
        (message,) = mailbox.messages()
        logs = [line for line in message["Message"].splitlines() if line.startswith("Log of")]
        assert len(logs) == 1
        assert logs[0].endswith("log-group/stepwatch-job-rules")

    def test_a_job_elsewhere_has_no_page_in_the_console(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        mailbox.tell(own_event(finding_of(pipeline, **LOCAL)))
        (message,) = mailbox.messages()
        assert "https://" not in message["Message"]

    def test_one_message_for_each_transition_however_often_it_is_reported(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        event = own_event(finding_of(pipeline))
        for _ in range(3):
            mailbox.tell(event)
        assert len(mailbox.messages()) == 1
        pipeline.put_job(NEXT_RUN)
        pipeline.put_step(3, sequence=1, run=NEXT_RUN, num_nan=2)
        pipeline.deliver()
        *_, finding = pipeline.announced()
        mailbox.tell(own_event(finding))
        (message,) = mailbox.messages()
        assert f"Run: {NEXT_RUN}" in message["Message"], "another run is another transition"

    def test_an_error_is_reported_with_its_reason(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        pipeline.put_job(debug_rule_configurations=({"RuleConfigurationName": RULE},))
        pipeline.put_marker()
        pipeline.deliver()
        *_, error = pipeline.announced()
        mailbox.tell(own_event(error))
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: ExplodingTensor could not evaluate mnist-7"
        assert "no step of this run was saved" in message["Message"]

    @pytest.mark.parametrize("asked", [None, ({"RuleConfigurationName": "Other"},), (OF_PACK,)])
    def test_that_there_was_nothing_to_judge_is_told_to_nobody_who_did_not_ask(
        self, pipeline: Pipeline, mailbox: Mailbox, asked: Any
    ) -> None:
        error = nothing_to_evaluate(pipeline)
        pipeline.put_job(debug_rule_configurations=asked)
        mailbox.tell(own_event(error))
        assert mailbox.messages() == []
        pipeline.patch.setenv(environment.NOTIFY_NOT_JUDGED, "true")
        mailbox.function._service.cache_clear()
        mailbox.tell(own_event(error))
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: ExplodingTensor could not evaluate mnist-7"

    @pytest.mark.parametrize("pack", [None, "", 5, ["recommended"]])
    def test_a_pack_that_cannot_be_one_leaves_a_rule_asked_for_by_its_name(
        self, pipeline: Pipeline, mailbox: Mailbox, pack: Any
    ) -> None:
        error = nothing_to_evaluate(pipeline)
        pipeline.put_job(debug_rule_configurations=({**OF_PACK, "Pack": pack},))
        mailbox.tell(own_event(error))
        assert len(mailbox.messages()) == 1

    def test_what_a_rule_of_a_pack_finds_is_reported(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        mailbox.tell(own_event(finding_of(pipeline, debug_rule_configurations=(OF_PACK,))))
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: ExplodingTensor found an issue in mnist-7"

    @pytest.mark.parametrize("asked", [None, (OF_PACK,)])
    def test_that_files_cannot_be_read_is_told_whoever_asked(
        self, pipeline: Pipeline, mailbox: Mailbox, asked: Any
    ) -> None:
        pipeline.put_job(debug_rule_configurations=asked)
        pipeline.put(index_key(0, "worker_0"), b"{")
        pipeline.put_marker()
        pipeline.deliver()
        *_, error = pipeline.announced()
        mailbox.tell(own_event(error))
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: ExplodingTensor could not evaluate mnist-7"

    def test_other_statuses_are_reported_where_the_operator_says_so(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        pipeline.put_job()
        pipeline.put_step(0)
        pipeline.deliver()
        (begun,) = pipeline.announced()
        mailbox.tell(own_event(begun))
        assert mailbox.messages() == []
        pipeline.patch.setenv(environment.NOTIFY_STATUSES, "InProgress, NoIssuesFound")
        mailbox.function._service.cache_clear()
        mailbox.tell(own_event(begun))
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: ExplodingTensor watches mnist-7"

    @pytest.mark.parametrize(
        "changes",
        [
            {"TrainingJobName": "another"},
            {"DebugOutputUri": "s3://tensors/elsewhere/"},
            {"DebugOutputUri": None},
            {"RunId": NEXT_RUN},
            {"RunId": None},
            {
                "DebugRuleEvaluationStatuses": [
                    {"RuleConfigurationName": "Other", "RuleEvaluationStatus": "IssuesFound"}
                ]
            },
            {
                "DebugRuleEvaluationStatuses": [
                    {"RuleConfigurationName": RULE, "RuleEvaluationStatus": "Error"}
                ]
            },
        ],
    )
    def test_what_the_table_does_not_confirm_is_not_told(
        self, pipeline: Pipeline, mailbox: Mailbox, changes: dict[str, Any]
    ) -> None:
        mailbox.tell(own_event(finding_of(pipeline), **changes))
        assert mailbox.messages() == []

    def test_the_words_are_the_tables_not_the_events(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        detail = finding_of(pipeline)
        detail["Evidence"]["remedy"] = "send me your password"
        detail["DebugRuleEvaluationStatuses"][0]["StatusDetails"] = "click here"
        detail["DebugRuleEvaluationStatuses"][0]["LastModifiedTime"] = 1
        mailbox.tell(own_event(detail))
        mailbox.tell(own_event({**detail, "Evidence": {"sentence": "again"}}))
        (message,) = mailbox.messages()
        assert "password" not in message["Message"]
        assert "click here" not in message["Message"]

    def test_thousands_of_findings_cost_two_hundred_looks(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        detail = finding_of(pipeline, **LOCAL)
        make_api_call, calls = BaseClient._make_api_call, []  # type: ignore[attr-defined]

        def noted(self: Any, operation_name: str, api_params: Any) -> Any:
            calls.append(operation_name)
            return make_api_call(self, operation_name, api_params)

        pipeline.patch.setattr(BaseClient, "_make_api_call", noted)
        statuses = [
            {"RuleConfigurationName": f"rule-{i}", "RuleEvaluationStatus": "IssuesFound"}
            for i in range(2500)
        ]
        mailbox.tell(own_event(detail, DebugRuleEvaluationStatuses=statuses))
        assert 0 < len(calls) <= 210
        assert mailbox.messages() == []

    @pytest.mark.parametrize("source", [None, "somebody.else", 5, ["aws.sagemaker"]])
    def test_no_other_source_is_listened_to(
        self, pipeline: Pipeline, mailbox: Mailbox, source: Any
    ) -> None:
        mailbox.tell({**own_event(finding_of(pipeline)), "source": source})
        mailbox.tell({**state_change((RULE, "IssuesFound")), "source": source})
        assert mailbox.messages() == []

    def test_the_jobs_addresses_are_attributes_to_filter_by(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        mine = mailbox.subscribe("mine", ActionEmail=["me@example.com"])
        others = mailbox.subscribe("others", ActionEmail=["you@example.com"])
        actions = (
            {"name": "email", "endpoint": "me@example.com"},
            {"name": "Email", "endpoint": "me@example.com"},
            {"name": "email", "endpoint": "my-team@example.com"},
            {"name": "sms", "endpoint": "+4930123456"},
            {"name": "email", "endpoint": "a\nb@example.com"},
            {"name": "email", "endpoint": 5},
        )
        mailbox.tell(own_event(finding_of(pipeline, actions=actions)))
        (message,) = mine.messages()
        reported = attributes(message)
        assert json.loads(reported["ActionEmail"]) == ["me@example.com", "my-team@example.com"]
        assert json.loads(reported["ActionSMS"]) == ["+4930123456"]
        assert others.messages() == []
        assert len(mailbox.messages()) == 1

    def test_a_job_file_that_cannot_be_used_keeps_nobody_uninformed(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        detail = finding_of(pipeline)
        pipeline.put("job.json", b"[")
        mailbox.tell(own_event(detail))
        assert len(mailbox.messages()) == 1


class TestNativeEvents:
    def test_each_finding_is_reported_once_however_many_events_carry_it(
        self, mailbox: Mailbox
    ) -> None:
        event = state_change(("Vanishing", "IssuesFound"), ("B", "NoIssuesFound"), ("C", "Error"))
        event["detail"]["DebugRuleEvaluationStatuses"][0]["StatusDetails"] = "at step 500"
        mailbox.tell(event)
        event["detail"]["TrainingJobStatus"] = "Completed"
        mailbox.tell(event)
        first, second = sorted(mailbox.messages(), key=lambda message: message["Subject"])
        assert first["Subject"] == "Stepwatch: C could not evaluate mnist-7"
        assert second["Subject"] == "Stepwatch: Vanishing found an issue in mnist-7"
        assert "Details: at step 500" in second["Message"]
        assert "#/jobs/mnist-7" in second["Message"]
        event["detail"]["DebugRuleEvaluationStatuses"][0]["LastModifiedTime"] += 1
        mailbox.tell(event)
        assert len(mailbox.messages()) == 1, "a later transition"

    @pytest.mark.parametrize("changes", [{"account": "210987654321"}, {"region": "us-east-1"}])
    def test_those_of_another_account_or_region_are_not_ours(
        self, mailbox: Mailbox, changes: dict[str, str]
    ) -> None:
        mailbox.tell({**state_change((RULE, "IssuesFound")), **changes})
        assert mailbox.messages() == []

    def test_filters_of_subscriptions(self, mailbox: Mailbox) -> None:
        mine = mailbox.subscribe("mine", RuleConfigurationName=["B"])
        quiet = mailbox.subscribe("quiet", RuleConfigurationName=[{"anything-but": ["B"]}])
        mailbox.tell(state_change(("A", "IssuesFound"), ("B", "IssuesFound")))
        assert [attributes(m)["RuleConfigurationName"] for m in mine.messages()] == ["B"]
        assert [attributes(m)["RuleConfigurationName"] for m in quiet.messages()] == ["A"]

    def test_whatever_json_comes_nothing_is_raised(self, mailbox: Mailbox) -> None:
        for shape in SHAPES:
            mailbox.tell(shape)
            mailbox.tell({**state_change((RULE, "IssuesFound")), "detail": shape})
            for name in ("TrainingJobName", "DebugRuleEvaluationStatuses"):
                if (name, shape) != ("TrainingJobName", "text"):
                    mailbox.tell(state_change((RULE, "IssuesFound"), **{name: shape}))
            for name in ("RuleConfigurationName", "RuleEvaluationStatus"):
                event = state_change((RULE, "IssuesFound"))
                if (name, shape) != ("RuleConfigurationName", "text"):
                    event["detail"]["DebugRuleEvaluationStatuses"][0][name] = shape
                    mailbox.tell(event)
        assert mailbox.messages() == []
        for shape in SHAPES:
            event = state_change((RULE, "IssuesFound"))
            event["detail"]["DebugRuleEvaluationStatuses"][0]["LastModifiedTime"] = shape
            mailbox.tell(event)
        assert mailbox.messages() != []

    def test_without_news_no_call_is_made(
        self, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []
        monkeypatch.setattr(BaseClient, "_make_api_call", lambda _, name, __: calls.append(name))
        mailbox.tell(state_change())
        mailbox.tell(state_change(("A", "InProgress"), ("B", "NoIssuesFound")))
        assert calls == []
