"""Entry point of the function that re-evaluates runs without recent files."""

from __future__ import annotations

import math
import os
import time
from functools import cache
from typing import Any, Final

from lambdas.shared import clients
from lambdas.shared.items import Items
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from lambdas.shared.settings import SweepSettings
from lambdas.shared.wake import WakeQueue
from lambdas.sweep.service import SweepService

__all__ = ["lambda_handler"]

_FUNCTION: Final = "sweep"


@cache
def _telemetry() -> Telemetry:
    return Telemetry(_FUNCTION)


@cache
def _service() -> SweepService:
    settings = SweepSettings.from_environment(os.environ)
    return SweepService(
        max_silence_s=settings.max_silence_s,
        items=Items(clients.dynamodb(), settings.state_table_name),
        registrations=RegistrationTable(clients.dynamodb(), settings.state_table_name),
        queue=WakeQueue(clients.sqs, settings.rule_queue_urls),
        telemetry=_telemetry(),
        clock=_now,
    )


def _now() -> float:
    return time.time()


def lambda_handler(event: Any, context: Any) -> dict[str, int]:  # noqa: ARG001 - the schedule's event has no content
    """Wake evaluations that receive no events.

    Args:
        event: The schedule's event; ignored.
        context: Lambda's context.

    Returns:
        Number of woken evaluations.
    """
    remaining_ms = getattr(context, "get_remaining_time_in_millis", lambda: math.inf)
    with _telemetry().invocation(context):
        return {"woken": _service().sweep(remaining_ms)}
