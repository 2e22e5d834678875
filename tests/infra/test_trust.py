"""Who may write to a deployment, how its versions replace each other, and what its bill shows."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from infra import app as application
from infra.config import StepwatchConfig
from infra.constructs.trust import bucket_statement
from tests.infra.conftest import EVERYTHING
from tests.infra.queries import Template, as_list, only, resources
from tests.infra.synthesis import template_of
from tools.statement_table import text_of

ROLES = "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/stepwatch/${AWS::Region}/prod/*"
OUTSIDERS = {
    "ArnNotLike": {"aws:PrincipalArn": ROLES},
    "Bool": {"aws:PrincipalIsAWSService": "false"},
}


OF_ANY_STAGE = ROLES.partition("/${")[0] + "/*"


def denials(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the statements of a policy that deny writes of outsiders."""
    found = [each for each in policy["Statement"] if "ArnNotLike" in each.get("Condition", {})]
    for each in found:
        assert (each["Effect"], each["Principal"]) == ("Deny", {"AWS": "*"})
        condition = dict(each["Condition"])
        roles = text_of(condition["ArnNotLike"]["aws:PrincipalArn"])
        assert roles in {ROLES, OF_ANY_STAGE}
        assert {**condition, "ArnNotLike": {"aws:PrincipalArn": ROLES}} == OUTSIDERS
    return found


def test_only_roles_of_the_deployment_write_to_its_table(full_template: Template) -> None:
    ((_, table),) = resources(full_template, "AWS::DynamoDB::Table").items()
    (statement,) = denials(table["ResourcePolicy"]["PolicyDocument"])
    assert {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"} <= set(
        statement["Action"]
    )
    assert statement["Resource"] == "*"


def test_only_roles_of_the_deployment_use_its_queues_and_its_topic(full_template: Template) -> None:
    denied = {
        queue["Ref"]: statement["Action"]
        for policy in resources(full_template, "AWS::SQS::QueuePolicy").values()
        for statement in denials(policy["PolicyDocument"])
        for queue in policy["Queues"]
    }
    assert denied.keys() == resources(full_template, "AWS::SQS::Queue").keys()
    for actions in denied.values():
        assert {"sqs:SendMessage", "sqs:DeleteMessage", "sqs:ReceiveMessage"} <= set(actions)
    ((_, topic),) = resources(full_template, "AWS::SNS::TopicPolicy").items()
    (statement,) = denials(topic["PolicyDocument"])
    assert statement["Action"] == "sns:Publish"


@pytest.mark.parametrize(
    ("key", "is_denied"),
    [
        ("job/rule-output/NonFinite/status.json", True),
        ("rule-output/NonFinite/status.json", True),
        ("team/job/debug-output/_stepwatch/memory/ab/1-cd.zlib", True),
        ("job/debug-output/index/000000000/000000000000_worker_0.json", False),
        ("my-rule-output/debug-output/job.json", False),
        ("job/debug-output/stop.json", False),
        ("job/rule-output/ProfilerReport/profiler-report.html", False),
    ],
)
def test_verdicts_are_written_by_roles_of_the_deployment(
    full_template: Template, key: str, *, is_denied: bool
) -> None:
    for part in ("TensorStorageTensors", "TensorStorageTensorssecond"):
        policies = resources(full_template, "AWS::S3::BucketPolicy")
        found = [p for name, p in policies.items() if name.startswith(part)]
        (statement,) = denials(found[0]["PolicyDocument"])
        assert statement["Action"] == "s3:PutObject"
        allowed = statement["Condition"]["ArnNotLike"]["aws:PrincipalArn"]
        assert text_of(allowed) == OF_ANY_STAGE, "other stages may watch the bucket, too"
        patterns = [text_of(each).partition("/")[2] for each in as_list(statement["Resource"])]
        assert any(fnmatchcase(key, pattern) for pattern in patterns) is is_denied


def test_the_statement_for_an_existing_bucket_is_printed() -> None:
    config = StepwatchConfig.from_context({**application.project_context(), **EVERYTHING})
    statement = json.loads(bucket_statement("another.team"))
    assert f'"Resource": {json.dumps(statement["Resource"])}' in "".join(
        line for line in application._summary(config) if "add to the policy of another.team" in line
    )
    assert "arn:aws:s3:::another.team/*/rule-output/*/status.json" in statement["Resource"]
    assert statement["Condition"]["ArnNotLike"] == {
        "aws:PrincipalArn": "arn:aws:iam::<account>:role/stepwatch/*"
    }


def test_every_role_is_recognised_by_its_path(full_template: Template) -> None:
    for role in resources(full_template, "AWS::IAM::Role").values():
        assert ROLES.endswith(f":role{text_of(role['Path'])}*")


def test_events_reach_new_versions_slowly_except_in_dev(
    full_template: Template, default_template: Template
) -> None:
    aliases = resources(full_template, "AWS::Lambda::Alias")
    assert {alias["Name"] for alias in aliases.values()} == {"live"}
    for part in ("StopJob", "FinishJob", "Notify"):
        name, _ = only(aliases, part)
        of_part = [n for n in full_template["Resources"] if n.startswith(part) and "Retries" in n]
        assert of_part, list(full_template["Resources"])
        assert all(name in full_template["Resources"][n]["DependsOn"] for n in of_part)
        called = {json.dumps({"Ref": name})}
        for rule, properties in resources(full_template, "AWS::Events::Rule").items():
            if rule.startswith(part):
                assert {json.dumps(each["Arn"]) for each in properties["Targets"]} == called
        _, retries = only(resources(full_template, "AWS::Lambda::EventInvokeConfig"), part)
        assert retries["Qualifier"] == "live"
        _, group = only(resources(full_template, "AWS::CodeDeploy::DeploymentGroup"), part)
        assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent5Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
        policy = full_template["Resources"][name]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        assert policy.keys() == {"ApplicationName", "DeploymentGroupName"}
    assert not resources(default_template, "AWS::Lambda::Alias")


def test_a_bus_of_its_own_has_the_rules_that_wake_evaluators() -> None:
    settings = {"stepwatch:rules": "NonFinite", "stepwatch:event_bus": "own"}
    template = template_of(settings)
    (bus,) = resources(template, "AWS::Events::EventBus")
    rules = resources(template, "AWS::Events::Rule")
    of_the_bus = {name for name, rule in rules.items() if rule.get("EventBusName") == {"Ref": bus}}
    assert {name.partition("Tensors")[0] for name in of_the_bus} == {
        "RuleNonFinite",
        "JobRulesBuiltIn",
    }
    _, passing = only(rules, "PassOn")
    assert passing["Targets"][0]["Arn"] == {"Fn::GetAtt": [bus, "Arn"]}
    assert all(rules[name]["EventPattern"] == passing["EventPattern"] for name in of_the_bus)


def test_the_bill_can_be_split_by_deployment_and_rule(full_template: Template) -> None:
    for part, component in {"Ruleexplosion": "Rule-explosion", "StopJob": "StopJob"}.items():
        _, function = only(resources(full_template, "AWS::Lambda::Function"), part)
        tags = {tag["Key"]: tag["Value"] for tag in function["Tags"]}
        assert tags == {"stepwatch:component": component, "stepwatch:stage": "prod"}
