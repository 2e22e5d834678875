"""What wakes the functions that have no queue, and what becomes of their failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.app import MAX_RESOURCES
from lambdas.contracts import environment
from lambdas.contracts.events import (
    JOB_RULES,
    issues_found_pattern,
    notable_statuses_pattern,
    stop_overdue_pattern,
    training_job_changed_pattern,
)
from lambdas.contracts.name_list import resolve_names
from tests.infra.conftest import EVERY_RULE
from tests.infra.queries import Template, arn, function_of, only, resources, variables
from tests.infra.synthesis import template_of

WITH_FAILURES = ("FinishJobFinish", "NotifyNotifier", "StopJobStopTrainingJob")


def rule_of(template: Template, part: str) -> dict[str, Any]:
    _, rule = only(resources(template, "AWS::Events::Rule"), part)
    assert rule["State"] == "ENABLED"
    assert "EventBusName" not in rule, "native events only arrive on the default bus"
    found: dict[str, Any] = rule
    return found


@pytest.mark.parametrize(
    ("part", "function", "pattern"),
    [
        ("IssuesFound", "StopJob", issues_found_pattern()),
        ("JobChanged", "FinishJob", training_job_changed_pattern()),
        ("FinalStatus", "Notify", notable_statuses_pattern(["IssuesFound", "Error"])),
        ("StopOverdue", "Notify", stop_overdue_pattern()),
    ],
)
def test_events_lead_to_the_function(
    template: Template, part: str, function: str, pattern: dict[str, Any]
) -> None:
    rule = rule_of(template, part)
    assert rule["EventPattern"] == pattern
    name, _ = function_of(template, function)
    failures, _ = only(resources(template, "AWS::SQS::Queue"), function)
    (target,) = rule["Targets"]
    assert target["Arn"] == arn(name)
    assert target["DeadLetterConfig"] == {"Arn": arn(failures)}


def test_people_are_told_of_the_chosen_statuses_only(
    template: Template, full_template: Template
) -> None:
    for found, statuses in ((template, ["IssuesFound", "Error"]), (full_template, None)):
        wanted = statuses or ["IssuesFound", "Stopped"]
        pattern = rule_of(found, "FinalStatus")["EventPattern"]
        assert pattern == notable_statuses_pattern(wanted)
        assert "InProgress" not in json.dumps(pattern)
        assert variables(found, "Notify")[environment.NOTIFY_STATUSES] == ",".join(wanted)


@pytest.mark.parametrize("part", WITH_FAILURES)
def test_no_event_is_lost(template: Template, part: str) -> None:
    name, _ = function_of(template, part)
    queue, properties = only(resources(template, "AWS::SQS::Queue"), part)
    assert properties["MessageRetentionPeriod"] == 14 * 86400
    _, retries = only(resources(template, "AWS::Lambda::EventInvokeConfig"), part)
    assert retries["FunctionName"] == {"Ref": name}
    assert retries["MaximumRetryAttempts"] == 2
    assert retries["DestinationConfig"] == {"OnFailure": {"Destination": arn(queue)}}


def test_the_sweep_runs_each_minute_and_one_at_a_time(template: Template) -> None:
    rule = rule_of(template, "SweepEachMinute")
    name, function = function_of(template, "Sweep")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert "EventPattern" not in rule
    assert [target["Arn"] for target in rule["Targets"]] == [arn(name)]
    assert function["Timeout"] < 60, "over before the next one begins"
    _, retries = only(resources(template, "AWS::Lambda::EventInvokeConfig"), "Sweep")
    assert retries["MaximumRetryAttempts"] == 0, "the next one does what a failed one did not"
    assert retries["MaximumEventAgeInSeconds"] == 60


def test_no_function_takes_concurrency_away_from_others(template: Template) -> None:
    """An account whose quota is ten may not reserve any, and could not deploy."""
    for function in resources(template, "AWS::Lambda::Function").values():
        assert "ReservedConcurrentExecutions" not in function


def test_stops_are_followed_up_each_minute(template: Template) -> None:
    rule = rule_of(template, "StopJobStopTrainingJobEachMinute")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    (target,) = rule["Targets"]
    assert target["Arn"] == arn(function_of(template, "StopJob")[0])
    assert json.loads(target["Input"]) == {"detail-type": "Stop Confirmation Due"}


def attribute_of(token: dict[str, Any]) -> str:
    """Return resource and attribute that a function of CloudFormation stands for."""
    return f"{token['Ref']}:Ref" if "Ref" in token else ":".join(token["Fn::GetAtt"])


@pytest.mark.parametrize("part", ["Sweep", "FinishJob"])
def test_who_wakes_evaluators_knows_every_queue(
    template: Template, rules: dict[str, Any], part: str
) -> None:
    queues = resources(template, "AWS::SQS::Queue")
    joined = variables(template, part)[environment.RULE_QUEUE_URLS]["Fn::Join"][1]
    parts = (part if isinstance(part, str) else attribute_of(part) for part in joined)
    listed = json.loads("".join(parts))
    assert listed.keys() == rules.keys() | {JOB_RULES}
    first = listed["VanishingGradient"].partition(":")[0]
    listed["VanishingGradient"] = url = f"https://sqs/1/{queues[first]['QueueName']}"
    names = {each["QueueName"] for each in queues.values() if "RedrivePolicy" in each}
    resolved = resolve_names(listed)
    assert resolved.keys() == rules.keys() | {JOB_RULES}
    assert {each.rpartition("/")[2] for each in resolved.values()} == names
    assert {each.rpartition("/")[0] for each in resolved.values()} == {url.rpartition("/")[0]}


def test_the_longest_names_of_queues_are_short_enough_and_differ() -> None:
    from infra.config import RuleConfiguration, StepwatchConfig
    from infra.constructs.rule_evaluation import _queue_name

    rules = [RuleConfiguration("R" * 60 + end, "ExplodingTensor", {}) for end in "ab"]
    config = StepwatchConfig(tuple(rules), stage="s" * 20)
    names = [_queue_name(config, rule.name) for rule in rules]
    assert [len(name) for name in names] == [80, 80]
    assert len(set(names)) == 2


def test_the_notifier_can_link_to_the_logs_of_a_rule(
    template: Template, rules: dict[str, Any]
) -> None:
    reported = variables(template, "Notify")
    groups = reported[environment.RULE_LOG_GROUPS]["Fn::Join"][1]
    first = "/stepwatch/dev/0a1b/rules/VanishingGradient"
    text = "".join(part if isinstance(part, str) else first for part in groups)
    parts = {rule: f"Rule{rule}" for rule in rules} | {JOB_RULES: "JobRulesBuiltIn"}
    resolved = resolve_names(json.loads(text))
    assert resolved.keys() == parts.keys()
    for rule, group in resolved.items():
        _, created = only(resources(template, "AWS::Logs::LogGroup"), parts[rule])
        literal = created["LogGroupName"]["Fn::Join"][1]
        assert "".join([literal[0], "0a1b", literal[-1]]) == group
    topic, _ = only(resources(template, "AWS::SNS::Topic"), "Alerts")
    assert reported[environment.TOPIC_ARN] == {"Ref": topic}


def test_settings_reach_the_function_that_stops_jobs(
    template: Template, full_template: Template
) -> None:
    reported = variables(template, "StopJob")
    assert reported[environment.STOP_POLICY] == "opt_in"
    assert reported[environment.STOP_RULES] == "explosion"
    assert reported[environment.STOP_OBSERVED_RULES] == ""
    assert reported[environment.DEPLOYED_RULES] == "VanishingGradient,explosion,LossNotDecreasing"
    assert reported[environment.STOP_CONFIRM_S] == "600"
    assert reported[environment.STOP_MIN_RULES] == "1"
    assert reported[environment.STOP_PLATFORMS] == ""
    assert reported[environment.STOP_TAG] == "stepwatch:debug-output"
    assert variables(full_template, "StopJob")[environment.STOP_PLATFORMS] == "batch,ecs"


def test_the_longest_silence_reaches_the_sweep(template: Template) -> None:
    assert variables(template, "Sweep")[environment.MAX_SILENCE_S] == "86400"


def test_every_variable_has_a_name_of_the_contract(full_template: Template) -> None:
    names = {getattr(environment, name) for name in environment.__all__}
    for function in resources(full_template, "AWS::Lambda::Function").values():
        assert set(function["Environment"]["Variables"]) <= names


def test_no_environment_exceeds_what_lambda_takes_with_every_rule_and_the_longest_stage() -> None:
    """References are counted as long as the longest values that they can have."""
    longest_stage = {"stepwatch:stage": "s" * 20, "stepwatch:cost_alarm_usd_per_day": 1}
    default_template = template_of({"stepwatch:rules": EVERY_RULE, **longest_stage})
    assert len(default_template["Resources"]) < MAX_RESOURCES
    longest = {"AWS::SQS::Queue": 120, "AWS::Logs::LogGroup": 90, "AWS::DynamoDB::Table": 80}
    types = {name: found["Type"] for name, found in default_template["Resources"].items()}

    def size(value: Any) -> int:
        if isinstance(value, str):
            return len(value.encode())
        if "Fn::Join" in value:
            return sum(size(part) for part in value["Fn::Join"][1])
        if "Ref" in value and types[value["Ref"]] == "AWS::SQS::Queue":
            name = default_template["Resources"][value["Ref"]]["Properties"]["QueueName"]
            return len(f"https://sqs.ap-southeast-2.amazonaws.com/123456789012/{name}")
        return longest.get(types.get(value.get("Ref", ""), ""), 100)

    for function in resources(default_template, "AWS::Lambda::Function").values():
        reported = function["Environment"]["Variables"]
        assert sum(len(name) + size(value) for name, value in reported.items()) < 4096
