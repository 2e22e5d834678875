"""What the synthesised template says; it is asserted here because moto ignores parts of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lambdas.contracts import environment
from lambdas.contracts.events import (
    ACTIVE_INDEX,
    ACTIVE_INDEX_ATTRIBUTES,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    tensor_object_pattern,
)
from tests.infra.queries import Template, only, resources, variables
from tests.infra.synthesis import template_of
from tools.statement_table import text_of

RULE_NAMES = ("VanishingGradient", "explosion", "LossNotDecreasing")


def logical_part(rule_name: str) -> str:
    return f"Rule{rule_name}"


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
    ):
        only(resources(template, resource_type), part)


def test_no_resource_needs_code_of_others(template: Template) -> None:
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
    assert table["GlobalSecondaryIndexes"] == [
        {
            "IndexName": ACTIVE_INDEX,
            "KeySchema": [
                {"AttributeName": "active", "KeyType": "HASH"},
                {"AttributeName": "updated_at", "KeyType": "RANGE"},
            ],
            "Projection": {
                "ProjectionType": "INCLUDE",
                "NonKeyAttributes": list(ACTIVE_INDEX_ATTRIBUTES),
            },
        }
    ]
    types = {a["AttributeName"]: a["AttributeType"] for a in table["AttributeDefinitions"]}
    assert types == {"run": "S", "rule": "S", "active": "S", "updated_at": "N"}
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
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 20
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
    reported = variables(template, logical_part(rule_name))
    assert reported[environment.RULE_CONFIGURATION_NAME] == rule_name
    parameters = json.loads(reported[environment.RULE_PARAMETERS])
    given = {"rule_to_invoke": rule_name, **rules[rule_name]}
    assert parameters == {key: str(value) for key, value in given.items()}
    assert reported[environment.EVENT_BUS_NAME] == "default"
    assert reported[environment.WORKER_WAIT_S] == "600"
    assert reported[environment.WORKER_WAIT_STEPS] == "20"
    assert {environment.STATE_TABLE_NAME, environment.TENSOR_BUCKET_NAMES} <= reported.keys()


@pytest.mark.parametrize("rule_name", RULE_NAMES)
def test_evaluator_may_wake_itself_through_its_queue(template: Template, rule_name: str) -> None:
    """Lambda ends such loops after sixteen rounds unless it is told that they are meant."""
    part = logical_part(rule_name)
    _, function = only(resources(template, "AWS::Lambda::Function"), part)
    assert function["RecursiveLoop"] == "Allow"
    _, mapping = only(resources(template, "AWS::Lambda::EventSourceMapping"), part)
    (queue, _) = mapping["EventSourceArn"]["Fn::GetAtt"]
    assert variables(template, part)[environment.QUEUE_URL] == {"Ref": queue}


def test_no_other_function_may_go_round_in_circles(template: Template) -> None:
    functions = resources(template, "AWS::Lambda::Function")
    others = [f for f in functions.values() if "evaluate_rule" not in f["Handler"]]
    assert {f["Handler"].split(".")[1] for f in others} == {
        "finish_job",
        "notify",
        "stop_job",
        "sweep",
    }
    assert not [f for f in others if "RecursiveLoop" in f]


def test_functions_run_the_same_code_on_the_same_runtime(template: Template) -> None:
    functions = resources(template, "AWS::Lambda::Function").values()
    assert {f["Runtime"] for f in functions} == {"python3.14"}
    assert {f["Handler"].rpartition(".")[2] for f in functions} == {"lambda_handler"}
    assert len({json.dumps([f["Code"], f["Layers"], f["Architectures"]]) for f in functions}) == 1


def test_visibility_exceeds_six_timeouts(template: Template) -> None:
    for name, queue in resources(template, "AWS::SQS::Queue").items():
        if "RedrivePolicy" in queue:
            _, function = only(
                resources(template, "AWS::Lambda::Function"), name.partition("Queue")[0]
            )
            assert queue["VisibilityTimeout"] == 6 * function["Timeout"] + 1


def test_every_function_has_its_own_log_group_with_a_retention(template: Template) -> None:
    groups = resources(template, "AWS::Logs::LogGroup")
    assert {group["RetentionInDays"] for group in groups.values()} == {30}
    used = [
        function["LoggingConfig"]["LogGroup"]["Ref"]
        for function in resources(template, "AWS::Lambda::Function").values()
    ]
    assert sorted(used) == sorted(groups)


def test_rules_called_like_parts_of_the_stack_have_names_of_their_own() -> None:
    names = ("sweep", "stop_job", "finish_job", "notify", "Sweep", "StopJob")
    rules = {name: {"rule_to_invoke": "NonFinite"} for name in names}
    template = template_of({"stepwatch:rules": rules})
    groups = resources(template, "AWS::Logs::LogGroup").values()
    reported = [json.dumps(group["LogGroupName"]) for group in groups]
    assert len(set(reported)) == len(reported)
    functions = resources(template, "AWS::Lambda::Function")
    tags = [json.dumps(function["Tags"]) for function in functions.values()]
    assert len(set(tags)) == len(tags)
    ((_, dashboard),) = resources(template, "AWS::CloudWatch::Dashboard").items()
    body = text_of(dashboard["DashboardBody"])
    (errors,) = (w for w in json.loads(body)["widgets"] if w["properties"]["title"] == "Errors")
    assert len(errors["properties"]["metrics"]) == len(functions)


def test_template_fits_any_account_and_region(template: Template, assembly: Path) -> None:
    text = json.dumps(template)
    assert "Parameters" not in template
    assert "us-east-1" not in text
    manifest = json.loads((assembly / "manifest.json").read_text())
    stack = manifest["artifacts"]["Stepwatch"]
    assert stack["environment"] == "aws://unknown-account/unknown-region"
    asked_for = {"TensorBucketName", "StateTableName", "StopJobFunctionName"}
    assert asked_for | {"JobRulesFunctionName", "NotifyFunctionName"} <= set(template["Outputs"])
