"""The status event in the schema registry, so that consumers can generate types of it."""

from __future__ import annotations

import json
from pathlib import Path

from aws_cdk import aws_eventschemas as eventschemas
from constructs import Construct

from lambdas.contracts.events import STATUS_DETAIL_TYPE, STATUS_SOURCE

__all__ = ["EventSchema"]

SCHEMA = (
    Path(__file__).resolve().parents[2] / "lambdas" / "contracts" / "schemas" / "status_event.json"
)


class EventSchema(Construct):
    """A registry with the schema of the status event.

    Attributes:
        arn: ARN of the schema.
    """

    def __init__(self, scope: Construct, id_: str, *, registry_name: str) -> None:
        """Create the registry and the schema.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            registry_name: Name of the registry.
        """
        super().__init__(scope, id_)
        registry = eventschemas.CfnRegistry(
            self,
            "Registry",
            registry_name=registry_name,
            description="Events that Stepwatch puts on the default bus",
        )
        schema = eventschemas.CfnSchema(
            self,
            "StatusEvent",
            registry_name=registry_name,
            schema_name=f"{STATUS_SOURCE}@{STATUS_DETAIL_TYPE.replace(' ', '')}",
            type="JSONSchemaDraft4",
            content=json.dumps(json.loads(SCHEMA.read_text(encoding="utf-8"))),
            description="The status of a rule for a run of a training job",
        )
        schema.add_resource_dependency(registry)
        self.arn = schema.attr_schema_arn
