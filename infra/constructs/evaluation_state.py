"""The table of evaluation states and of registered jobs."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.encryption import Encryption
from infra.constructs.trust import Trust
from lambdas.contracts.events import (
    ACTIVE_ATTRIBUTE,
    ACTIVE_INDEX,
    ACTIVE_INDEX_ATTRIBUTES,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    UPDATED_AT_ATTRIBUTE,
)

__all__ = ["EvaluationState"]


class EvaluationState(Construct):
    """The table with one item per run and rule: checkpoint, verdict and evidence."""

    def __init__(
        self, scope: Construct, id_: str, *, config: StepwatchConfig, encryption: Encryption
    ) -> None:
        """Create the table and its index of active evaluations."""
        super().__init__(scope, id_)
        text, number = dynamodb.AttributeType.STRING, dynamodb.AttributeType.NUMBER
        self.table = dynamodb.Table(
            self,
            "States",
            partition_key=dynamodb.Attribute(name=STATE_PARTITION_KEY, type=text),
            sort_key=dynamodb.Attribute(name=STATE_SORT_KEY, type=text),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=encryption.of_table,
            encryption_key=encryption.data_key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            resource_policy=Trust(config).table_policy(),
            deletion_protection=config.retains_data,
            time_to_live_attribute=STATE_TTL_ATTRIBUTE,
            # Deletion protection would also block the rollback of a failed first deployment.
            removal_policy=cdk.RemovalPolicy.RETAIN
            if config.retains_data
            else cdk.RemovalPolicy.DESTROY,
        )
        self.table.add_global_secondary_index(
            index_name=ACTIVE_INDEX,
            partition_key=dynamodb.Attribute(name=ACTIVE_ATTRIBUTE, type=text),
            sort_key=dynamodb.Attribute(name=UPDATED_AT_ATTRIBUTE, type=number),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=list(ACTIVE_INDEX_ATTRIBUTES),
        )
