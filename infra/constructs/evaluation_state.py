"""The table of evaluation states and of registered jobs."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from lambdas.contracts.events import (
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
)

__all__ = ["EvaluationState"]


class EvaluationState(Construct):
    """One item a run and rule, with the checkpoint, the verdict and its evidence.

    Attributes:
        table: The table. It outlives the stack: a verdict stays.
    """

    def __init__(self, scope: Construct, id_: str) -> None:
        """Create the table.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
        """
        super().__init__(scope, id_)
        self.table = dynamodb.Table(
            self,
            "States",
            partition_key=dynamodb.Attribute(
                name=STATE_PARTITION_KEY, type=dynamodb.AttributeType.STRING
            ),
            sort_key=dynamodb.Attribute(name=STATE_SORT_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=STATE_TTL_ATTRIBUTE,
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
