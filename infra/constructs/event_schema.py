"""Registers the schemas of Stepwatch's events, so that consumers can generate types from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import aws_eventschemas as eventschemas
from constructs import Construct

from lambdas.contracts.events import (
    JOB_SUMMARY_DETAIL_TYPE,
    STATUS_DETAIL_TYPE,
    STATUS_SOURCE,
    STOP_OVERDUE_DETAIL_TYPE,
)

__all__ = ["SCHEMAS", "EventSchema", "RegisteredEvent"]

FOLDER = Path(__file__).resolve().parents[2] / "lambdas" / "contracts" / "schemas"


@dataclass(frozen=True)
class RegisteredEvent:
    """An event with a schema, and a one-line description for the console."""

    detail_type: str
    file: Path
    description: str

    @property
    def schema_name(self) -> str:
        """Name of the schema, in EventBridge's format for discovered schemas."""
        return f"{STATUS_SOURCE}@{self.detail_type.replace(' ', '')}"


SCHEMAS = {
    "StatusEvent": RegisteredEvent(
        STATUS_DETAIL_TYPE,
        FOLDER / "status_event.json",
        "The status of a rule for a run of a training job",
    ),
    "JobSummaryEvent": RegisteredEvent(
        JOB_SUMMARY_DETAIL_TYPE,
        FOLDER / "job_summary_event.json",
        "The statuses of all rules over a run of a training job, and the cause of their findings",
    ),
    "StopOverdueEvent": RegisteredEvent(
        STOP_OVERDUE_DETAIL_TYPE,
        FOLDER / "stop_overdue_event.json",
        "A training job that continues although it was asked to stop",
    ),
}
"""The events by id of their resource."""


class EventSchema(Construct):
    """A registry with the schemas of Stepwatch's events; `arn` is that of the status event."""

    def __init__(self, scope: Construct, id_: str, *, registry_name: str) -> None:
        """Create the registry and the schemas."""
        super().__init__(scope, id_)
        registry = eventschemas.CfnRegistry(
            self,
            "Registry",
            registry_name=registry_name,
            description="Events that Stepwatch puts on the default bus",
        )
        made = {}
        for id_of_schema, event in SCHEMAS.items():
            made[id_of_schema] = eventschemas.CfnSchema(
                self,
                id_of_schema,
                registry_name=registry_name,
                schema_name=event.schema_name,
                type="JSONSchemaDraft4",
                content=json.dumps(json.loads(event.file.read_text(encoding="utf-8"))),
                description=event.description,
            )
            made[id_of_schema].add_resource_dependency(registry)
        self.arn = made["StatusEvent"].attr_schema_arn
