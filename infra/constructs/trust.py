"""Denies writes of principals outside the deployment, whatever their own policies allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.encryption import KEY_ACTIONS, Encryption
from infra.nag import acknowledge

__all__ = ["REPAIRS", "EmergencyRole", "Trust", "bucket_statement", "role_path"]

TABLE_WRITES = (
    *("dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:PartiQLDelete"),
    *("dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate", "dynamodb:PutItem"),
    "dynamodb:UpdateItem",
)
QUEUE_WRITES = (
    *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:PurgeQueue", "sqs:ReceiveMessage"),
    "sqs:SendMessage",
)
"""Receiving hides an event from its function, so it counts as a write."""
VERDICTS = ("rule-output/*/status.json", "rule-output/report.html", "_stepwatch/memory/*")
"""What only functions write: verdicts, reports and memories. SageMaker's rules have other files."""
REPAIRS = {
    "cloudformation:DescribeStacks": "arn:{}:cloudformation:{}:{}:stack/{}/*",
    "dynamodb:DeleteItem,dynamodb:GetItem,dynamodb:Query": "arn:{}:dynamodb:{}:{}:table/{}-*",
    "lambda:GetFunctionConfiguration,lambda:InvokeFunction": "arn:{}:lambda:{}:{}:function:{}-*",
    "sqs:DeleteMessage,sqs:GetQueueAttributes,sqs:GetQueueUrl,sqs:ReceiveMessage,"
    "sqs:SendMessage": "arn:{}:sqs:{}:{}:{}-*",
}
"""Permissions of the role for emergencies: redelivering events, and removing damaged items."""


def role_path(config: StepwatchConfig, region: str = cdk.Aws.REGION) -> str:
    """Return the path of a deployment's roles, by which its policies recognise them."""
    return f"/stepwatch/{region}/{config.stage}/"


def bucket_statement(bucket: str) -> str:
    """Return the statement that protects the verdicts in an existing bucket, for its policy."""
    resources = _verdicts(f"arn:aws:s3:::{bucket}")
    return json.dumps(_denied(["s3:PutObject"], resources, _any_stage("aws", "<account>")))


class Trust:
    """Adds statements to resource policies.

    Roles are recognised by their path. AWS services, such as EventBridge, have no role; other
    statements of the policies limit them.
    """

    def __init__(self, config: StepwatchConfig) -> None:
        self._roles = f"arn:{cdk.Aws.PARTITION}:iam::{cdk.Aws.ACCOUNT_ID}:role{role_path(config)}*"

    def table_policy(self) -> iam.PolicyDocument:
        """Return the policy of the state table."""
        # The table's ARN would be a circular reference; here, "*" is this table.
        return iam.PolicyDocument(statements=[self._deny(TABLE_WRITES, ["*"])])

    def queue_statement(self, queue_arn: str) -> iam.PolicyStatement:
        """Return the statement that denies sending, receiving and deleting messages."""
        return self._deny(QUEUE_WRITES, [queue_arn])

    def protect_topic(self, topic: sns.Topic) -> None:
        """Deny publishing messages."""
        topic.add_to_resource_policy(self._deny(["sns:Publish"], [topic.topic_arn]))

    def protect_verdicts(self, bucket: s3.Bucket) -> None:
        """Deny writing verdicts; people may delete them, for example to empty the bucket."""
        roles = _any_stage(cdk.Aws.PARTITION, cdk.Aws.ACCOUNT_ID)
        statement = _denied(["s3:PutObject"], _verdicts(bucket.bucket_arn), roles)
        bucket.add_to_resource_policy(iam.PolicyStatement.from_json(statement))

    def _deny(self, actions: Sequence[str], resources: Sequence[str]) -> iam.PolicyStatement:
        return iam.PolicyStatement.from_json(_denied(actions, resources, self._roles))


class EmergencyRole(Construct):
    """A role that people assume to repair a deployment, because the policies deny them writes."""

    def __init__(
        self, scope: Construct, id_: str, *, config: StepwatchConfig, encryption: Encryption
    ) -> None:
        """Create the role; whoever the account allows `sts:AssumeRole` on it may assume it."""
        super().__init__(scope, id_)
        stack = (cdk.Aws.PARTITION, cdk.Aws.REGION, cdk.Aws.ACCOUNT_ID, config.stack_name)
        statements = [
            iam.PolicyStatement(actions=actions.split(","), resources=[pattern.format(*stack)])
            for actions, pattern in REPAIRS.items()
        ]
        if encryption.data_key is not None:
            key = [encryption.data_key.key_arn]
            statements.append(iam.PolicyStatement(actions=list(KEY_ACTIONS), resources=key))
        self.role = iam.Role(
            self,
            "Role",
            path=role_path(config),
            description="Repairs the deployment: delivers events again, removes damaged items",
            assumed_by=iam.AccountRootPrincipal(),
            inline_policies={"Repairs": iam.PolicyDocument(statements=statements)},
        )
        shown = ("<AWS::Partition>", "<AWS::Region>", "<AWS::AccountId>", config.stack_name)
        for pattern in REPAIRS.values():
            acknowledge(
                self.role,
                f"IAM5[Resource::{pattern.format(*shown)}]",
                reason=f"The names of {pattern.split(':')[2]} begin with the stack's. Those of "
                "another stack with this beginning deny the role by their own policies.",
            )


def _any_stage(partition: str, account: str) -> str:
    """Return the pattern of the roles of all deployments, which may watch the same bucket."""
    return f"arn:{partition}:iam::{account}:role/stepwatch/*"


def _verdicts(bucket_arn: str) -> list[str]:
    """Return the objects, at any depth."""
    return [f"{bucket_arn}/{at}{objects}" for objects in VERDICTS for at in ("", "*/")]


def _denied(actions: Sequence[str], resources: Sequence[str], roles: str) -> dict[str, Any]:
    return {
        "Sid": "DenyWritesOfOthers",
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": list(actions),
        "Resource": list(resources),
        "Condition": {
            "ArnNotLike": {"aws:PrincipalArn": roles},
            "Bool": {"aws:PrincipalIsAWSService": "false"},
        },
    }
