"""The key of a deployment: always for its topic, optionally for all stored data."""

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
"""Key permissions to send to an encrypted queue or topic."""
TABLE_KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""Key permissions to use an encrypted table through DynamoDB, and for log groups of CloudWatch
Logs. Creating grants is not among them."""
SENDERS = ("cloudwatch.amazonaws.com", "events.amazonaws.com")
"""Services that send to the topic and to the queues."""


class Encryption(Construct):
    """The key of the topic; `data_key` is the same for buckets, queues, table and logs, if enabled.

    The topic needs a customer key: CloudWatch cannot send alarms to a topic with SNS's own key.
    """

    def __init__(self, scope: Construct, id_: str, *, config: StepwatchConfig) -> None:
        """Create the key, or use the one in the settings."""
        super().__init__(scope, id_)
        if config.kms_key_arn is None:
            self.key: kms.IKey = self._own_key(config)
        else:
            self.key = kms.Key.from_key_arn(self, "Key", config.kms_key_arn)
        self.data_key = self.key if config.encryption == "kms" else None

    @property
    def of_buckets(self) -> s3.BucketEncryption:
        """Encryption of buckets."""
        return s3.BucketEncryption.KMS if self.data_key else s3.BucketEncryption.S3_MANAGED

    @property
    def of_table(self) -> dynamodb.TableEncryption:
        """Encryption of the table."""
        own = dynamodb.TableEncryption.CUSTOMER_MANAGED
        return own if self.data_key else dynamodb.TableEncryption.AWS_MANAGED

    @property
    def of_queues(self) -> sqs.QueueEncryption:
        """Encryption of queues."""
        return sqs.QueueEncryption.KMS if self.data_key else sqs.QueueEncryption.SQS_MANAGED

    def _own_key(self, config: StepwatchConfig) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            description=f"What the deployment {config.stack_name} stores and sends",
            enable_key_rotation=True,
            removal_policy=removal_of(config),
        )
        # Without a condition on the source, because EventBridge does not send it to the key. The
        # policies of the queues and of the topic do require it.
        for service in SENDERS if config.encryption == "kms" else SENDERS[:1]:
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[iam.ServicePrincipal(service)],
                    actions=list(KEY_ACTIONS),
                    resources=["*"],  # in a key's policy, this key
                )
            )
        if config.encryption == "kms":
            self._open_to_logs(key, config)
        return key

    def _open_to_logs(self, key: kms.Key, config: StepwatchConfig) -> None:
        """Allow CloudWatch Logs to use the key for log groups of this stack."""
        stack = cdk.Stack.of(self)
        # By name prefix, because their ARNs would be circular references to the key.
        groups = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{config.log_group_prefix}*",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
                actions=list(TABLE_KEY_ACTIONS),
                resources=["*"],  # in a key's policy, this key
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
