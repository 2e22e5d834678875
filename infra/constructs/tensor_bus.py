"""A bus of the deployment's own for the event rules that wake evaluators."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.trust import role_path
from lambdas.contracts.events import tensor_object_pattern

__all__ = ["TensorBus", "tensor_events"]


class TensorBus(Construct):
    """The bus, and a rule of the default bus that passes on events of index files."""

    def __init__(
        self, scope: Construct, id_: str, *, config: StepwatchConfig, buckets: Sequence[str]
    ) -> None:
        """Create the bus and the rule."""
        super().__init__(scope, id_)
        self.bus = events.EventBus(self, "Bus")
        permission = iam.PolicyStatement(
            actions=["events:PutEvents"], resources=[self.bus.event_bus_arn]
        )
        role = iam.Role(
            self,
            "Role",
            path=role_path(config),
            assumed_by=iam.ServicePrincipal("events.amazonaws.com"),
            inline_policies={"PassOn": iam.PolicyDocument(statements=[permission])},
        )
        # Without dead letters: the sweep finds what EventBridge could not deliver within a day.
        events.Rule(
            self,
            "PassOn",
            description="Tensors of a step were written: pass the event on to the own bus",
            event_pattern=tensor_events(buckets),
            targets=[targets.EventBus(self.bus, role=role.without_policy_updates())],
        )


def tensor_events(buckets: Sequence[str]) -> events.EventPattern:
    """Return the pattern of events of index files in some buckets."""
    pattern = tensor_object_pattern(list(buckets))
    return events.EventPattern(
        source=pattern["source"], detail_type=pattern["detail-type"], detail=pattern["detail"]
    )
