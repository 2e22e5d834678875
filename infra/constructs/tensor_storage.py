"""The bucket that training jobs write their tensors to."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

__all__ = ["TensorStorage"]

ACCESS_LOG_EXPIRATION_DAYS = 90
INCOMPLETE_UPLOAD_EXPIRATION_DAYS = 1


class TensorStorage(Construct):
    """A private, encrypted bucket whose object creations reach EventBridge.

    Attributes:
        bucket: The tensor bucket. It outlives the stack: tensors are results.
    """

    def __init__(
        self, scope: Construct, id_: str, *, bucket_name: str | None, expiration_days: int
    ) -> None:
        """Create the bucket and the bucket of its access logs.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            bucket_name: Name of the bucket; None lets CloudFormation choose one.
            expiration_days: Days after which tensors are deleted.
        """
        super().__init__(scope, id_)
        self.bucket = s3.Bucket(
            self,
            "Tensors",
            bucket_name=bucket_name,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            server_access_logs_bucket=self._access_logs(),
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=cdk.Duration.days(expiration_days),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(
                        INCOMPLETE_UPLOAD_EXPIRATION_DAYS
                    ),
                )
            ],
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
        self._send_events()

    def _access_logs(self) -> s3.Bucket:
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
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )

    def _send_events(self) -> None:
        # The L2 flag adds a custom resource with a function of its own; the property is enough.
        resource = self.bucket.node.default_child
        if not isinstance(resource, s3.CfnBucket):  # pragma: no cover - a change in CDK
            raise TypeError(f"the tensor bucket's resource is {resource!r}, not a CfnBucket")
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
                event_bridge_enabled=True
            )
        )
