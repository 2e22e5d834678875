"""What AWS needs to deliver and run anything, and the emulator does without: policies, permissions,
log groups, and handlers that exist.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

Resources = dict[str, dict[str, Any]]
EVENTS = "events.amazonaws.com"


@pytest.fixture(scope="module")
def resources(template: dict[str, Any]) -> Resources:
    """Every resource of the template by its logical id."""
    found: Resources = template["Resources"]
    return found


def of_type(resources: Resources, resource_type: str) -> Resources:
    return {
        name: resource["Properties"]
        for name, resource in resources.items()
        if resource["Type"] == resource_type
    }


def arn(name: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [name, "Arn"]}


def named_by(value: dict[str, Any]) -> str:
    """Return the logical id of the resource that an ARN is taken from."""
    name, attribute = value["Fn::GetAtt"]
    assert attribute == "Arn"
    return str(name)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def may_send(resources: Resources, queue: str, rule: str) -> bool:
    """Whether EventBridge may send messages to a queue on behalf of an event rule."""
    return any(
        statement["Effect"] == "Allow"
        and statement["Principal"] == {"Service": EVENTS}
        and "sqs:SendMessage" in as_list(statement["Action"])
        and statement["Resource"] == arn(queue)
        and statement["Condition"] == {"ArnEquals": {"aws:SourceArn": arn(rule)}}
        for policy in of_type(resources, "AWS::SQS::QueuePolicy").values()
        if {"Ref": queue} in policy["Queues"]
        for statement in policy["PolicyDocument"]["Statement"]
    )


def granted(resources: Resources, function: str) -> set[tuple[str, str]]:
    """Return the pairs of action and resource that a function's role allows."""
    role = named_by(resources[function]["Properties"]["Role"])
    return {
        (action, json.dumps(resource))
        for policy in of_type(resources, "AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow" and "Condition" not in statement
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }


def test_event_rules_may_reach_their_targets(resources: Resources) -> None:
    permissions = of_type(resources, "AWS::Lambda::Permission").values()
    kinds = []
    for rule, properties in of_type(resources, "AWS::Events::Rule").items():
        for target in properties["Targets"]:
            name = named_by(target["Arn"])
            kinds.append(resources[name]["Type"])
            if kinds[-1] == "AWS::SQS::Queue":
                assert may_send(resources, name, rule), f"{rule} may not send to {name}"
            else:
                expected = {
                    "Action": "lambda:InvokeFunction",
                    "FunctionName": arn(name),
                    "Principal": EVENTS,
                    "SourceArn": arn(rule),
                }
                assert expected in list(permissions), f"{rule} may not invoke {name}"
    assert sorted(kinds) == ["AWS::Lambda::Function", *["AWS::SQS::Queue"] * 3]


def test_event_rules_may_reach_their_dead_letters(resources: Resources) -> None:
    for rule, properties in of_type(resources, "AWS::Events::Rule").items():
        for target in properties["Targets"]:
            letters = named_by(target["DeadLetterConfig"]["Arn"])
            assert may_send(resources, letters, rule), f"{rule} may not send to {letters}"


def test_no_queue_has_a_key_that_event_bridge_may_not_use(resources: Resources) -> None:
    for queue in of_type(resources, "AWS::SQS::Queue").values():
        assert queue["SqsManagedSseEnabled"] is True
        assert "KmsMasterKeyId" not in queue


def test_permissions_to_invoke_are_for_one_source_each(resources: Resources) -> None:
    for permission in of_type(resources, "AWS::Lambda::Permission").values():
        assert permission["SourceArn"]


def test_watched_buckets_send_events(resources: Resources) -> None:
    watched = [
        bucket["Ref"]
        for rule in of_type(resources, "AWS::Events::Rule").values()
        for bucket in rule["EventPattern"]["detail"].get("bucket", {}).get("name", [])
    ]
    assert len(watched) == 3
    for name in watched:
        notification = resources[name]["Properties"]["NotificationConfiguration"]
        assert notification["EventBridgeConfiguration"] == {"EventBridgeEnabled": True}


def test_event_sources_may_be_read_with_the_functions_role(resources: Resources) -> None:
    mappings = of_type(resources, "AWS::Lambda::EventSourceMapping")
    assert len(mappings) == 3
    for mapping in mappings.values():
        queue = mapping["EventSourceArn"]
        allowed = granted(resources, mapping["FunctionName"]["Ref"])
        for action in ("DeleteMessage", "GetQueueAttributes", "ReceiveMessage"):
            assert (f"sqs:{action}", json.dumps(queue)) in allowed


def test_failed_invocations_may_be_reported(resources: Resources) -> None:
    ((_, retries),) = of_type(resources, "AWS::Lambda::EventInvokeConfig").items()
    destination = retries["DestinationConfig"]["OnFailure"]["Destination"]
    allowed = granted(resources, retries["FunctionName"]["Ref"])
    assert ("sqs:SendMessage", json.dumps(destination)) in allowed


def test_functions_may_write_to_the_log_group_that_they_use(resources: Resources) -> None:
    for name, function in of_type(resources, "AWS::Lambda::Function").items():
        group = function["LoggingConfig"]["LogGroup"]["Ref"]
        allowed = granted(resources, name)
        logs = {pair for pair in allowed if pair[0].startswith("logs:")}
        assert logs == {
            (f"logs:{action}", json.dumps(arn(group)))
            for action in ("CreateLogStream", "PutLogEvents")
        }


def test_only_lambda_takes_the_roles(resources: Resources) -> None:
    for role in of_type(resources, "AWS::IAM::Role").values():
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}
        assert statement["Action"] == "sts:AssumeRole"


def test_handlers_exist_in_the_assets(resources: Resources, assembly: Path) -> None:
    files = json.loads((assembly / "Stepwatch.assets.json").read_text())["files"]
    for function in of_type(resources, "AWS::Lambda::Function").values():
        asset = files[function["Code"]["S3Key"].removesuffix(".zip")]
        module, _, attribute = function["Handler"].rpartition(".")
        path = assembly / asset["source"]["path"] / f"{module.replace('.', '/')}.py"
        tree = ast.parse(path.read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert attribute in defined, f"{path} has no function {attribute}"
