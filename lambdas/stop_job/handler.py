"""Entry point of the function that stops training jobs."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, Final

from hook_layer.storage.s3 import S3Store
from lambdas.shared import clients
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from lambdas.shared.settings import StopJobSettings
from lambdas.shared.state_table import DynamoStateTable
from lambdas.stop_job.request import parse_request
from lambdas.stop_job.service import StopJobDependencies, StopJobService

__all__ = ["lambda_handler"]

_FUNCTION: Final = "stop_job"


@cache
def _telemetry() -> Telemetry:
    return Telemetry(_FUNCTION)


@cache
def _service() -> StopJobService:
    settings = StopJobSettings.from_environment(os.environ)
    return StopJobService(
        settings,
        StopJobDependencies(
            states=DynamoStateTable(clients.dynamodb(), settings.state_table_name),
            registrations=RegistrationTable(clients.dynamodb(), settings.state_table_name),
            sagemaker=clients.sagemaker,
            open_store=lambda uri: S3Store(uri, client=clients.s3()),
            telemetry=_telemetry(),
        ),
    )


def lambda_handler(event: Any, context: Any) -> dict[str, Any] | None:
    """Stop the training job that an event names, when a rule found an issue in it.

    Args:
        event: A "SageMaker Training Job State Change" event of EventBridge, or only its detail.
        context: Lambda's context.

    Returns:
        None after a stop; otherwise an answer of status 200 that says that nothing was to be done.
    """
    with _telemetry().invocation(context):
        request = parse_request(event)
        with _telemetry().job(request.training_job_name, request.run_id):
            if request.findings and _service().handle(request):
                return None
    return {"statusCode": 200, "body": json.dumps("Nothing to do")}
