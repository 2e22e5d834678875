"""The key of a deployment: always for its topic, on request for all that it stores."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.removal import removal_of

__all__ = ["KEY_ACTIONS", "Encryption"]

KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")
"""What anyone who sends to an encrypted queue or topic needs of its key."""
TABLE_KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""What a user of an encrypted table needs of its key, through DynamoDB; CloudWatch Logs needs the
same for its log groups. The right to create grants is not among it."""
SENDERS = ("cloudwatch.amazonaws.com", "events.amazonaws.com")
"""Services that send to the topic, and to the queues."""


class Encryption(Construct):
    """The key of the topic; `data_key` is the same for buckets, queues, table and logs, if any.

    The topic needs a key that its owner can open to others: CloudWatch cannot send an alarm to a
    topic under SNS's own key.
    """

    def __init__(self, scope: Construct, id_: str, *, config: StepwatchConfig) -> None:
        """Create the key, or take the one that the settings name."""
        super().__init__(scope, id_)
        if config.kms_key_arn is None:
            self.key: kms.IKey = self._own_key(config)
        else:
            self.key = kms.Key.from_key_arn(self, "Key", config.kms_key_arn)
        self.data_key = self.key if config.encryption == "kms" else None

    @property
    def of_buckets(self) -> s3.BucketEncryption:
        """How buckets are encrypted."""
        return s3.BucketEncryption.KMS if self.data_key else s3.BucketEncryption.S3_MANAGED

    @property
    def of_table(self) -> dynamodb.TableEncryption:
        """How the table is encrypted."""
        own = dynamodb.TableEncryption.CUSTOMER_MANAGED
        return own if self.data_key else dynamodb.TableEncryption.AWS_MANAGED

    @property
    def of_queues(self) -> sqs.QueueEncryption:
        """How queues are encrypted."""
        return sqs.QueueEncryption.KMS if self.data_key else sqs.QueueEncryption.SQS_MANAGED

    def _own_key(self, config: StepwatchConfig) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            description=f"What the deployment {config.stack_name} stores and sends",
            enable_key_rotation=True,
            removal_policy=removal_of(config),
        )
        # No condition on the source: EventBridge does not send it to the key. The policies of the
        # queues and of the topic do require it.
        for service in SENDERS if config.encryption == "kms" else SENDERS[:1]:
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[iam.ServicePrincipal(service)],
                    actions=list(KEY_ACTIONS),
                    resources=["*"],  # of a key's policy: this key
                )
            )
        if config.encryption == "kms":
            self._open_to_logs(key, config.stack_name)
        return key

    def _open_to_logs(self, key: kms.Key, stack_name: str) -> None:
        """Let CloudWatch Logs use the key for log groups of this stack."""
        stack = cdk.Stack.of(self)
        # By the beginning of their names: their ARNs would refer back to the key.
        groups = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{stack_name}-*",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
                actions=list(TABLE_KEY_ACTIONS),
                resources=["*"],  # of a key's policy: this key
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
