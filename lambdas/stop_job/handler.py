"""Entry point of the function that stops training jobs."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from hook_layer.storage.s3 import S3Store
from lambdas.shared import clients
from lambdas.shared.event_bus import EventBus
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from lambdas.shared.run_states import RunStates
from lambdas.shared.settings import StopJobSettings
from lambdas.shared.stop_table import StopTable
from lambdas.stop_job.confirmation import StopConfirmation, is_confirmation_due
from lambdas.stop_job.containers import BatchJobs, EcsTasks
from lambdas.stop_job.request import parse_request
from lambdas.stop_job.sagemaker_jobs import SageMakerJobs
from lambdas.stop_job.service import StopJobService
from lambdas.stop_job.stopper import JobStopper

__all__ = ["lambda_handler"]

_FUNCTION: Final = "stop_job"


@cache
def _telemetry() -> Telemetry:
    return Telemetry(_FUNCTION)


@dataclass(frozen=True)
class _Services:
    """The services for the function's two kinds of events."""

    stop: StopJobService
    confirmation: StopConfirmation


@cache
def _service() -> _Services:
    settings = StopJobSettings.from_environment(os.environ)
    table_name, telemetry = settings.state_table_name, _telemetry()
    registrations = RegistrationTable(clients.dynamodb(), table_name)
    stops = StopTable(clients.dynamodb(), table_name)
    stopper = JobStopper(
        settings,
        sagemaker=SageMakerJobs(clients.sagemaker, telemetry),
        containers={"batch": BatchJobs(clients.batch), "ecs": EcsTasks(clients.ecs)},
        registrations=registrations,
        open_store=lambda uri: S3Store(uri, client=clients.s3()),
        telemetry=telemetry,
    )
    deciding = StopJobService(
        settings,
        runs=RunStates(clients.dynamodb(), table_name),
        registrations=registrations,
        stops=stops,
        stopper=stopper,
        telemetry=telemetry,
    )
    bus = EventBus(clients.eventbridge, settings.event_bus_name)
    confirming = StopConfirmation(settings, stops, stopper, bus, telemetry)
    return _Services(deciding, confirming)


def lambda_handler(event: Any, context: Any) -> dict[str, Any] | None:
    """Stop the training job in an event, if a rule found an issue in it.

    Args:
        event: A "SageMaker Training Job State Change" event of EventBridge, or only its detail; or
            a "Stop Confirmation Due" event, which checks stopped jobs.
        context: Lambda's context.

    Returns:
        None after a stop; otherwise a response with status 200 that explains why nothing was done.
    """
    with _telemetry().invocation(context):
        if is_confirmation_due(event):
            remaining_ms = getattr(context, "get_remaining_time_in_millis", lambda: math.inf)
            _service().confirmation.check(remaining_ms)
            return None
        request = parse_request(event, context)
        with _telemetry().job(request.training_job_name, request.run_id):
            if request.findings and _service().stop.handle(request):
                return None
    return {"statusCode": 200, "body": json.dumps("Nothing to do")}
