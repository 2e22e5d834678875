"""What AWS needs to deliver and run anything, and the emulator does without: policies, permissions,
log groups, and handlers that exist.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra import queries
from tests.infra.queries import arn, as_list

Resources = dict[str, dict[str, Any]]

EVENTS = "events.amazonaws.com"


@pytest.fixture(scope="module", params=["template", "full_template"])
def resources(request: pytest.FixtureRequest) -> Resources:
    """Every resource of a template by its logical id, of two very different settings."""
    found: Resources = request.getfixturevalue(request.param)["Resources"]
    return found


def of_type(resources: Resources, resource_type: str) -> Resources:
    return queries.resources({"Resources": resources}, resource_type)


def named_by(value: dict[str, Any]) -> str:
    """Return the logical id of the resource that an ARN is taken from."""
    name, attribute = value["Fn::GetAtt"]
    assert attribute == "Arn"
    return str(name)


def may_send(resources: Resources, queue: str, rule: str) -> bool:
    """Whether EventBridge may send messages to a queue on behalf of an event rule."""
    return any(
        statement["Effect"] == "Allow"
        and statement["Principal"] == {"Service": EVENTS}
        and "sqs:SendMessage" in as_list(statement["Action"])
        and statement["Resource"] in (arn(queue), "*")
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
        for policy in queries.policies_of({"Resources": resources}, role)
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow" and "Condition" not in statement
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }


def test_event_rules_may_reach_their_targets(resources: Resources) -> None:
    permissions = of_type(resources, "AWS::Lambda::Permission").values()
    for rule, properties in of_type(resources, "AWS::Events::Rule").items():
        for target in properties["Targets"]:
            name = target["Arn"].get("Ref") or named_by(target["Arn"])
            if resources[name]["Type"] == "AWS::SQS::Queue":
                assert may_send(resources, name, rule), f"{rule} may not send to {name}"
            else:
                expected = {
                    "Action": "lambda:InvokeFunction",
                    "FunctionName": target["Arn"],
                    "Principal": EVENTS,
                    "SourceArn": arn(rule),
                }
                assert expected in list(permissions), f"{rule} may not invoke {name}"


def test_event_rules_may_reach_their_dead_letters(resources: Resources) -> None:
    for rule, properties in of_type(resources, "AWS::Events::Rule").items():
        for target in properties["Targets"]:
            if properties.get("ScheduleExpression") and "DeadLetterConfig" not in target:
                continue  # comes again in a minute
            letters = named_by(target["DeadLetterConfig"]["Arn"])
            assert may_send(resources, letters, rule), f"{rule} may not send to {letters}"


def test_permissions_to_invoke_are_for_one_source_each(resources: Resources) -> None:
    for permission in of_type(resources, "AWS::Lambda::Permission").values():
        assert permission["SourceArn"]


def test_watched_buckets_send_events(resources: Resources) -> None:
    """Those of the stack do; for others a user is told how to switch it on."""
    for rule in of_type(resources, "AWS::Events::Rule").values():
        pattern = rule.get("EventPattern", {})
        for name in pattern.get("detail", {}).get("bucket", {}).get("name", []):
            if isinstance(name, dict):
                notification = resources[name["Ref"]]["Properties"]["NotificationConfiguration"]
                assert notification["EventBridgeConfiguration"] == {"EventBridgeEnabled": True}


def test_event_sources_may_be_read_with_the_functions_role(resources: Resources) -> None:
    mappings = of_type(resources, "AWS::Lambda::EventSourceMapping")
    assert mappings
    for mapping in mappings.values():
        queue = mapping["EventSourceArn"]
        allowed = granted(resources, mapping["FunctionName"]["Ref"])
        for action in ("DeleteMessage", "GetQueueAttributes", "ReceiveMessage"):
            assert (f"sqs:{action}", json.dumps(queue)) in allowed


def test_failed_invocations_may_be_reported(resources: Resources) -> None:
    reported = [
        (retries["DestinationConfig"]["OnFailure"]["Destination"], retries["FunctionName"]["Ref"])
        for retries in of_type(resources, "AWS::Lambda::EventInvokeConfig").values()
        if "DestinationConfig" in retries
    ]
    assert len(reported) == 3
    for destination, function in reported:
        assert ("sqs:SendMessage", json.dumps(destination)) in granted(resources, function)


def test_functions_may_write_to_the_log_group_that_they_use(resources: Resources) -> None:
    for name, function in of_type(resources, "AWS::Lambda::Function").items():
        group = function["LoggingConfig"]["LogGroup"]["Ref"]
        allowed = granted(resources, name)
        logs = {pair for pair in allowed if pair[0].startswith("logs:")}
        assert logs == {
            (f"logs:{action}", json.dumps(arn(group)))
            for action in ("CreateLogStream", "PutLogEvents")
        }


def test_services_and_people_in_an_emergency_take_the_roles(resources: Resources) -> None:
    for name, role in of_type(resources, "AWS::IAM::Role").items():
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        service = "codedeploy" if "Canary" in name else "lambda"
        expected: Any = {"Service": f"{service}.amazonaws.com"}
        if name.startswith("Emergency"):
            root = ["arn:", {"Ref": "AWS::Partition"}, ":iam::", {"Ref": "AWS::AccountId"}, ":root"]
            expected = {"AWS": {"Fn::Join": ["", root]}}
        assert statement["Principal"] == expected
        assert statement["Action"] == "sts:AssumeRole"


def test_handlers_exist_in_the_assets(template: dict[str, Any], assembly: Path) -> None:
    files = json.loads((assembly / "Stepwatch.assets.json").read_text())["files"]
    for function in of_type(template["Resources"], "AWS::Lambda::Function").values():
        asset = files[function["Code"]["S3Key"].removesuffix(".zip")]
        module, _, attribute = function["Handler"].rpartition(".")
        path = assembly / asset["source"]["path"] / f"{module.replace('.', '/')}.py"
        tree = ast.parse(path.read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert attribute in defined, f"{path} has no function {attribute}"


def test_an_update_does_not_empty_the_policy_of_a_queue(default_template: dict[str, Any]) -> None:
    """CloudFormation would, if it deleted the policy of an earlier release under another id."""
    policies = of_type(default_template["Resources"], "AWS::SQS::QueuePolicy")
    queue, letters = policies["RuleNonFiniteQueuePolicyF15112E5"]["Queues"]
    assert queue["Ref"].startswith("RuleNonFiniteQueue")
    assert letters["Ref"].startswith("RuleNonFiniteLetters")
