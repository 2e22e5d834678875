"""Buckets, keys, the topic, and what outlives a stack."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lambdas.contracts import environment
from tests.infra.queries import Template, as_list, only, resources, variables
from tools.statement_table import text_of

KEPT_IN_PRODUCTION = (
    "AWS::DynamoDB::Table",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
)
SENDS = {"kms:Decrypt", "kms:GenerateDataKey"}


def key_of(template: Template) -> tuple[str, Any]:
    return only(resources(template, "AWS::KMS::Key"), "EncryptionKey")


LOGS = "logs.${AWS::Region}.${AWS::URLSuffix}"


def senders(template: Template) -> dict[str, set[str]]:
    """Return what the key's policy lets services do that send messages."""
    _, key = key_of(template)
    found: dict[str, set[str]] = {}
    for statement in key["KeyPolicy"]["Statement"]:
        for service in as_list(statement["Principal"].get("Service", [])):
            if text_of(service) != LOGS:
                assert "Condition" not in statement, "EventBridge does not tell its source to a key"
                found.setdefault(service, set()).update(as_list(statement["Action"]))
    return found


@pytest.mark.parametrize("resource_type", KEPT_IN_PRODUCTION)
def test_production_outlives_its_stack_and_no_other_stage_does(
    template: Template, full_template: Template, resource_type: str
) -> None:
    for found, policy in ((template, "Delete"), (full_template, "Retain")):
        of_type = [r for r in found["Resources"].values() if r["Type"] == resource_type]
        assert of_type
        for resource in of_type:
            assert resource["DeletionPolicy"].removesuffix("ExceptOnCreate") == policy
            assert resource["UpdateReplacePolicy"] == policy


def test_a_first_deployment_that_fails_leaves_no_bucket_whose_name_is_taken(
    full_template: Template,
) -> None:
    for name, bucket in full_template["Resources"].items():
        if bucket["Type"] == "AWS::S3::Bucket" and name.startswith("TensorStorage"):
            assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"


def test_the_table_of_production_is_not_deleted_by_mistake(
    template: Template, full_template: Template
) -> None:
    for found, protected in ((template, False), (full_template, True)):
        _, table = only(resources(found, "AWS::DynamoDB::Table"), "States")
        assert table.get("DeletionProtectionEnabled", False) is protected


def test_all_buckets_of_a_deployment_are_alike(full_template: Template) -> None:
    tensors = {
        name: bucket
        for name, bucket in resources(full_template, "AWS::S3::Bucket").items()
        if name.startswith("TensorStorageTensors")
    }
    assert {bucket["BucketName"] for bucket in tensors.values()} == {
        "first-bucket",
        "second-bucket",
    }
    shapes = []
    for name, bucket in tensors.items():
        assert bucket["NotificationConfiguration"] == {
            "EventBridgeConfiguration": {"EventBridgeEnabled": True}
        }
        logging = bucket["LoggingConfiguration"]
        shapes.append(json.dumps({**bucket, "BucketName": "", "LoggingConfiguration": logging}))
        policies = resources(full_template, "AWS::S3::BucketPolicy").values()
        (policy,) = [p for p in policies if p["Bucket"] == {"Ref": name}]
        assert "aws:SecureTransport" in json.dumps(policy)
    assert len(set(shapes)) == 1


def test_every_bucket_is_watched_and_known_to_every_function(full_template: Template) -> None:
    names = {
        text_of({"Ref": name})
        for name in resources(full_template, "AWS::S3::Bucket")
        if name.startswith("TensorStorageTensors")
    } | {"another.team"}
    _, rule = only(resources(full_template, "AWS::Events::Rule"), "Ruleexplosion")
    assert {text_of(name) for name in rule["EventPattern"]["detail"]["bucket"]["name"]} == names
    for part in ("Ruleexplosion", "Sweep", "FinishJob", "StopJob", "Notify"):
        reported = text_of(variables(full_template, part)[environment.TENSOR_BUCKET_NAMES])
        assert set(reported.split(",")) == names
    outputs = full_template["Outputs"]
    assert set(text_of(outputs["TensorBucketNames"]["Value"]).split(",")) == names


def test_a_bucket_of_others_is_not_touched(full_template: Template) -> None:
    for resource in full_template["Resources"].values():
        if resource["Type"].startswith("AWS::S3::"):
            assert "another.team" not in json.dumps(resource)


def test_a_key_of_ones_own_encrypts_buckets_queues_and_topic(full_template: Template) -> None:
    name, key = key_of(full_template)
    assert key["EnableKeyRotation"] is True
    for queue in resources(full_template, "AWS::SQS::Queue").values():
        assert queue["KmsMasterKeyId"] == {"Fn::GetAtt": [name, "Arn"]}
        assert "SqsManagedSseEnabled" not in queue
    for bucket_id, bucket in resources(full_template, "AWS::S3::Bucket").items():
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        if "AccessLogs" not in bucket_id:
            assert rule["BucketKeyEnabled"] is True
            default = rule["ServerSideEncryptionByDefault"]
            assert default["KMSMasterKeyID"] == {"Fn::GetAtt": [name, "Arn"]}
    assert senders(full_template) == {
        "cloudwatch.amazonaws.com": SENDS,
        "events.amazonaws.com": SENDS,
    }


def test_it_encrypts_the_table_and_the_logs(full_template: Template) -> None:
    name, _ = key_of(full_template)
    key = {"Fn::GetAtt": [name, "Arn"]}
    _, table = only(resources(full_template, "AWS::DynamoDB::Table"), "States")
    assert table["SSESpecification"] == {
        "KMSMasterKeyId": key,
        "SSEEnabled": True,
        "SSEType": "KMS",
    }
    groups = resources(full_template, "AWS::Logs::LogGroup")
    assert len(groups) == len(resources(full_template, "AWS::Lambda::Function"))
    assert all(group["KmsKeyId"] == key for group in groups.values())


def test_logs_of_this_stack_only_can_use_the_key(full_template: Template) -> None:
    _, key = key_of(full_template)
    (statement,) = [
        statement
        for statement in key["KeyPolicy"]["Statement"]
        if text_of(statement["Principal"].get("Service", "")) == LOGS
    ]
    ((operator, keys),) = statement["Condition"].items()
    ((context, groups),) = keys.items()
    assert (operator, context) == ("ArnLike", "kms:EncryptionContext:aws:logs:arn")
    assert text_of(groups) == (
        "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:/stepwatch/prod/*"
    )
    assert not [action for action in statement["Action"] if "*" in action]


def test_without_it_table_and_logs_have_keys_of_the_services(template: Template) -> None:
    _, table = only(resources(template, "AWS::DynamoDB::Table"), "States")
    assert table["SSESpecification"] == {"SSEEnabled": True}
    for group in resources(template, "AWS::Logs::LogGroup").values():
        assert "KmsKeyId" not in group


def test_without_it_queues_and_buckets_have_keys_of_the_services(template: Template) -> None:
    for queue in resources(template, "AWS::SQS::Queue").values():
        assert queue["SqsManagedSseEnabled"] is True
        assert "KmsMasterKeyId" not in queue
    for bucket in resources(template, "AWS::S3::Bucket").values():
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}


def test_alarms_can_reach_the_encrypted_topic(template: Template) -> None:
    """SNS's own key cannot be opened to CloudWatch: alarms would end in their history."""
    key, _ = key_of(template)
    topic_id, topic = only(resources(template, "AWS::SNS::Topic"), "Alerts")
    assert topic["KmsMasterKeyId"] == {"Fn::GetAtt": [key, "Arn"]}
    assert senders(template) == {"cloudwatch.amazonaws.com": SENDS}
    ((_, policy),) = resources(template, "AWS::SNS::TopicPolicy").items()
    assert policy["Topics"] == [{"Ref": topic_id}]
    refused, allowed, others = policy["PolicyDocument"]["Statement"]
    assert (others["Effect"], others["Action"]) == ("Deny", "sns:Publish")
    assert refused["Effect"] == "Deny"
    assert refused["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }


def test_each_address_is_subscribed_once(template: Template, full_template: Template) -> None:
    assert resources(template, "AWS::SNS::Subscription") == {}
    topic, _ = only(resources(full_template, "AWS::SNS::Topic"), "Alerts")
    found = resources(full_template, "AWS::SNS::Subscription").values()
    assert sorted(s["Endpoint"] for s in found) == ["a@example.com", "b@example.com"]
    assert {s["Protocol"] for s in found} == {"email"}
    assert [s["TopicArn"] for s in found] == [{"Ref": topic}] * 2


def test_resources_carry_the_stage(full_template: Template) -> None:
    tag = {"Key": "stepwatch:stage", "Value": "prod"}
    for resource_type in ("AWS::Lambda::Function", "AWS::SQS::Queue", "AWS::S3::Bucket"):
        for properties in resources(full_template, resource_type).values():
            assert tag in properties["Tags"]
    _, table = only(resources(full_template, "AWS::DynamoDB::Table"), "States")
    assert tag in table["Tags"]


def test_logs_are_kept_as_long_as_the_settings_say(full_template: Template) -> None:
    groups = resources(full_template, "AWS::Logs::LogGroup").values()
    assert {group["RetentionInDays"] for group in groups} == {90}
