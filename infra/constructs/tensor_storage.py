"""The buckets for the tensors of training jobs."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.encryption import Encryption
from infra.constructs.removal import removal_of
from infra.constructs.trust import Trust

__all__ = ["TensorStorage"]

ACCESS_LOG_EXPIRATION_DAYS = 90
INCOMPLETE_UPLOAD_EXPIRATION_DAYS = 1


class TensorStorage(Construct):
    """Private, encrypted buckets that send object events to EventBridge, and existing buckets.

    Attributes:
        bucket: The deployment's first bucket, which always exists.
        buckets: All watched buckets, the first one first.
    """

    def __init__(
        self, scope: Construct, id_: str, *, config: StepwatchConfig, encryption: Encryption
    ) -> None:
        """Create the buckets and the bucket of their access logs."""
        super().__init__(scope, id_)
        self._config, self._encryption = config, encryption
        self._removal = removal_of(config)
        self.access_logs = self._make_access_logs()
        self.bucket = self._make("Tensors", config.tensor_bucket_name)
        self.buckets: tuple[s3.IBucket, ...] = (
            self.bucket,
            *(self._make(f"Tensors-{name}", name) for name in config.new_tensor_buckets),
            *(
                s3.Bucket.from_bucket_name(self, f"Watched-{name}", name)
                for name in config.tensor_buckets
            ),
        )

    def _make(self, id_: str, name: str | None) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            id_,
            bucket_name=name,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=self._encryption.of_buckets,
            encryption_key=self._encryption.data_key,
            # Otherwise every read and write of an object causes a paid request to the key.
            bucket_key_enabled=True if self._encryption.data_key else None,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            server_access_logs_bucket=self.access_logs,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=cdk.Duration.days(self._config.tensor_expiration_days),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(
                        INCOMPLETE_UPLOAD_EXPIRATION_DAYS
                    ),
                )
            ],
            removal_policy=self._removal,
        )
        _send_events(bucket)
        Trust(self._config).protect_verdicts(bucket)
        return bucket

    def _make_access_logs(self) -> s3.Bucket:
        # S3 writes access logs with a customer key only if the key's policy allows the service.
        return s3.Bucket(
            self,
            "AccessLogs",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(expiration=cdk.Duration.days(ACCESS_LOG_EXPIRATION_DAYS))
            ],
            removal_policy=self._removal,
        )


def _send_events(bucket: s3.Bucket) -> None:
    # The L2 flag would add a custom resource with a function; the property is enough.
    resource = bucket.node.default_child
    if not isinstance(resource, s3.CfnBucket):  # pragma: no cover - a change in CDK
        raise TypeError(f"the tensor bucket's resource is {resource!r}, not a CfnBucket")
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
            event_bridge_enabled=True
        )
    )
