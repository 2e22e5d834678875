"""Access of a deployment's functions to the tensor buckets and the state table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3

from infra.constructs.function import StepwatchFunction
from infra.nag import acknowledge
from lambdas.contracts import environment
from lambdas.contracts.events import ACTIVE_INDEX

__all__ = ["WatchedState"]


@dataclass(frozen=True)
class WatchedState:
    """The watched buckets, and the table of evaluation states."""

    buckets: tuple[s3.IBucket, ...]
    table: dynamodb.Table

    def environment(self) -> dict[str, str]:
        """Return the environment variables with their names for a function."""
        return {
            environment.STATE_TABLE_NAME: self.table.table_name,
            environment.TENSOR_BUCKET_NAMES: ",".join(self.bucket_names()),
        }

    def bucket_names(self) -> list[str]:
        """Return the names of the buckets."""
        return [bucket.bucket_name for bucket in self.buckets]

    def allow_objects(
        self, function: StepwatchFunction, actions: Sequence[str], keys: str, *, reason: str
    ) -> None:
        """Allow a function actions on the objects whose keys match a pattern.

        `reason` explains the wildcard, for cdk-nag.
        """
        function.allow(actions, [bucket.arn_for_objects(keys) for bucket in self.buckets])
        for bucket in self.buckets:
            acknowledge(function, f"IAM5[Resource::{_shown(bucket)}/{keys}]", reason=reason)

    def allow_listing(self, function: StepwatchFunction) -> None:
        """Allow a function to list keys; otherwise S3 returns "access denied" if one is missing."""
        function.allow(["s3:ListBucket"], [bucket.bucket_arn for bucket in self.buckets])

    def allow_items(
        self,
        function: StepwatchFunction,
        actions: Sequence[str],
        *,
        partitions: Sequence[str] = (),
    ) -> None:
        """Allow a function actions on items of the table.

        `partitions` are patterns of partition keys; empty for all of them.
        """
        conditions = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(partitions)}}
        function.allow(
            actions, [self.table.table_arn], conditions=conditions if partitions else None
        )

    def allow_active_index(self, function: StepwatchFunction) -> None:
        """Allow a function to read the index of active evaluations."""
        function.allow(["dynamodb:Query"], [f"{self.table.table_arn}/index/{ACTIVE_INDEX}"])


def _shown(bucket: s3.IBucket) -> str:
    """Return a bucket's ARN in cdk-nag's format."""
    resource = bucket.node.default_child
    if isinstance(resource, cdk.CfnElement):
        return f"<{cdk.Stack.of(bucket).get_logical_id(resource)}.Arn>"
    return f"arn:<AWS::Partition>:s3:::{bucket.bucket_name}"
