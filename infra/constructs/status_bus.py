"""The bus of status events, and the permission to put events on it."""

from __future__ import annotations

import aws_cdk as cdk

from infra.constructs.function import StepwatchFunction
from lambdas.contracts.events import STATUS_SOURCE

__all__ = ["STATUS_BUS", "allow_status_events"]

STATUS_BUS = "default"  # the only bus that receives native events


def allow_status_events(function: StepwatchFunction, detail_type: str) -> None:
    """Allow a function to send events of one type to the bus, only with Stepwatch's source."""
    bus = cdk.Stack.of(function).format_arn(
        service="events", resource="event-bus", resource_name=STATUS_BUS
    )
    function.allow(
        ["events:PutEvents"],
        [bus],
        conditions={
            "StringEquals": {"events:source": STATUS_SOURCE, "events:detail-type": detail_type}
        },
    )
