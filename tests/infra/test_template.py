"""What the synthesised template says; it is asserted here because moto ignores parts of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lambdas.contracts import environment
from lambdas.contracts.events import (
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    issues_found_pattern,
    tensor_object_pattern,
)

Template = dict[str, Any]
RULE_NAMES = ("VanishingGradient", "explosion", "LossNotDecreasing")


def resources(template: Template, resource_type: str) -> dict[str, Any]:
    return {
        name: resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == resource_type
    }


def only(found: dict[str, Any], part: str) -> tuple[str, Any]:
    ((name, properties),) = [(n, p) for n, p in found.items() if part in n]
    return name, properties


def logical_part(rule_name: str) -> str:
    return f"Rule{rule_name}"


def statements(template: Template, part: str) -> list[dict[str, Any]]:
    _, policy = only(resources(template, "AWS::IAM::Policy"), part)
    found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return found


def actions(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return action if isinstance(action, list) else [action]


@pytest.mark.parametrize("rule_name", RULE_NAMES)
def test_each_rule_has_one_of_everything(template: Template, rule_name: str) -> None:
    part = logical_part(rule_name)
    queues = {n: p for n, p in resources(template, "AWS::SQS::Queue").items() if part in n}
    assert len([p for p in queues.values() if "RedrivePolicy" in p]) == 1
    assert len([p for p in queues.values() if "RedrivePolicy" not in p]) == 1
    for resource_type in (
        "AWS::Lambda::Function",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Events::Rule",
        "AWS::Logs::LogGroup",
        "AWS::IAM::Role",
        "AWS::CloudWatch::Alarm",
    ):
        only(resources(template, resource_type), part)


def test_nothing_but_the_rules_and_stop_job(template: Template) -> None:
    count = len(RULE_NAMES)
    assert len(resources(template, "AWS::SQS::Queue")) == 2 * count + 1
    assert len(resources(template, "AWS::Lambda::Function")) == count + 1
    assert len(resources(template, "AWS::Events::Rule")) == count + 1
    assert len(resources(template, "AWS::IAM::Role")) == count + 1
    types = {resource["Type"] for resource in template["Resources"].values()}
    assert not {t for t in types if t.startswith("Custom::") or "CustomResource" in t}


def test_tensor_bucket_is_private_and_sends_events(template: Template) -> None:
    _, bucket = only(resources(template, "AWS::S3::Bucket"), "Tensors")
    assert bucket["NotificationConfiguration"] == {
        "EventBridgeConfiguration": {"EventBridgeEnabled": True}
    }
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert "BucketEncryption" in bucket
    assert "LoggingConfiguration" in bucket
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    assert rule["ExpirationInDays"] == 90
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    for policy in resources(template, "AWS::S3::BucketPolicy").values():
        assert "aws:SecureTransport" in json.dumps(policy)


def test_state_table_follows_the_contract(template: Template) -> None:
    ((_, table),) = resources(template, "AWS::DynamoDB::Table").items()
    assert table["KeySchema"] == [
        {"AttributeName": STATE_PARTITION_KEY, "KeyType": "HASH"},
        {"AttributeName": STATE_SORT_KEY, "KeyType": "RANGE"},
    ]
    assert table["TimeToLiveSpecification"] == {
        "AttributeName": STATE_TTL_ATTRIBUTE,
        "Enabled": True,
    }
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


@pytest.mark.parametrize("rule_name", RULE_NAMES)
def test_events_reach_the_evaluator(template: Template, rule_name: str) -> None:
    part = logical_part(rule_name)
    bucket, _ = only(resources(template, "AWS::S3::Bucket"), "Tensors")
    _, rule = only(resources(template, "AWS::Events::Rule"), part)
    pattern: Any = tensor_object_pattern([])
    pattern["detail"]["bucket"]["name"] = [{"Ref": bucket}]
    assert rule["EventPattern"] == pattern
    assert rule["State"] == "ENABLED"
    queues = {n: p for n, p in resources(template, "AWS::SQS::Queue").items() if part in n}
    ((name, queue),) = [(n, p) for n, p in queues.items() if "RedrivePolicy" in p]
    (letters,) = [n for n in queues if n != name]
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [letters, "Arn"]}}
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 10
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": [letters, "Arn"]}
    _, mapping = only(resources(template, "AWS::Lambda::EventSourceMapping"), part)
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": [name, "Arn"]}
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BatchSize"] == 10
    assert mapping["MaximumBatchingWindowInSeconds"] == 1
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 10}


@pytest.mark.parametrize("rule_name", RULE_NAMES)
def test_evaluator_is_told_its_rule(
    template: Template, rules: dict[str, dict[str, Any]], rule_name: str
) -> None:
    _, function = only(resources(template, "AWS::Lambda::Function"), logical_part(rule_name))
    assert function["Handler"] == "lambdas.evaluate_rule.handler.lambda_handler"
    assert function["Runtime"] == "python3.14"
    assert "RecursiveLoop" not in function, "nothing wakes itself: Lambda's guard stays on"
    variables = function["Environment"]["Variables"]
    assert variables[environment.RULE_CONFIGURATION_NAME] == rule_name
    parameters = json.loads(variables[environment.RULE_PARAMETERS])
    given = {"rule_to_invoke": rule_name, **rules[rule_name]}
    assert parameters == {key: str(value) for key, value in given.items()}
    assert variables[environment.EVENT_BUS_NAME] == "default"
    assert {environment.STATE_TABLE_NAME, environment.TENSOR_BUCKET_NAMES} <= variables.keys()


def test_visibility_exceeds_six_timeouts(template: Template) -> None:
    for name, queue in resources(template, "AWS::SQS::Queue").items():
        if "RedrivePolicy" in queue:
            _, function = only(
                resources(template, "AWS::Lambda::Function"), name.partition("Queue")[0]
            )
            assert queue["VisibilityTimeout"] == 6 * function["Timeout"] + 1


def test_evaluator_may_do_exactly_this(template: Template) -> None:
    part = logical_part("VanishingGradient")
    found = statements(template, part)
    assert sorted(action for statement in found for action in actions(statement)) == [
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "events:PutEvents",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "s3:GetObject",
        "s3:ListBucket",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
    ]
    for statement in found:
        own = json.dumps(statement["Resource"])
        service = actions(statement)[0].split(":")[0]
        if service in {"logs", "sqs"}:
            assert part in own
        if service == "events":
            assert own.endswith('":event-bus/default"]]}')


def test_stop_job_may_do_exactly_this(template: Template) -> None:
    by_action = {
        action: json.dumps(statement["Resource"])
        for statement in statements(template, "StopJob")
        for action in actions(statement)
    }
    assert sorted(by_action) == [
        "dynamodb:GetItem",
        "dynamodb:Query",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "s3:GetObject",
        "s3:PutObject",
        "sagemaker:StopTrainingJob",
        "sqs:SendMessage",
    ]
    assert ":training-job/*" in by_action["sagemaker:StopTrainingJob"]
    assert "/*/stop.json" in by_action["s3:PutObject"]


def test_no_wildcard_in_actions_and_no_managed_policies(template: Template) -> None:
    for policy in resources(template, "AWS::IAM::Policy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            assert not [action for action in actions(statement) if "*" in action]
            assert statement["Resource"] != "*"
    for role in resources(template, "AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role


def test_stop_job_gets_findings_and_loses_none(template: Template) -> None:
    _, rule = only(resources(template, "AWS::Events::Rule"), "StopJob")
    assert rule["EventPattern"] == issues_found_pattern()
    name, function = only(resources(template, "AWS::Lambda::Function"), "StopJob")
    queue, _ = only(resources(template, "AWS::SQS::Queue"), "StopJob")
    failures = {"Fn::GetAtt": [queue, "Arn"]}
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    assert target["DeadLetterConfig"] == {"Arn": failures}
    ((_, retries),) = resources(template, "AWS::Lambda::EventInvokeConfig").items()
    assert retries["MaximumRetryAttempts"] == 2
    assert retries["DestinationConfig"] == {"OnFailure": {"Destination": failures}}
    assert function["Handler"] == "lambdas.stop_job.handler.lambda_handler"
    variables = function["Environment"]["Variables"]
    assert variables[environment.STOP_POLICY] == "stop"
    assert variables[environment.STOP_RULES] == "explosion"
    assert variables[environment.STOP_ANY_NATIVE_JOB] == "true"


def test_every_dead_letter_raises_an_alarm(template: Template) -> None:
    watched = {
        dimension["Value"]["Fn::GetAtt"][0]
        for alarm in resources(template, "AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Dimensions"]
    }
    without_redrive = {
        name
        for name, queue in resources(template, "AWS::SQS::Queue").items()
        if "RedrivePolicy" not in queue
    }
    assert watched == without_redrive


def test_every_function_has_its_own_log_group_with_a_retention(template: Template) -> None:
    groups = resources(template, "AWS::Logs::LogGroup")
    assert {group["RetentionInDays"] for group in groups.values()} == {30}
    used = [
        function["LoggingConfig"]["LogGroup"]["Ref"]
        for function in resources(template, "AWS::Lambda::Function").values()
    ]
    assert sorted(used) == sorted(groups)


def test_template_fits_any_account_and_region(template: Template, assembly: Path) -> None:
    text = json.dumps(template)
    assert "Parameters" not in template
    assert "us-east-1" not in text
    manifest = json.loads((assembly / "manifest.json").read_text())
    stack = manifest["artifacts"]["Stepwatch"]
    assert stack["environment"] == "aws://unknown-account/unknown-region"
    assert {"TensorBucketName", "StateTableName", "StopJobFunctionName"} <= set(template["Outputs"])
