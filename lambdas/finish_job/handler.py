"""Entry point of the function for ended training jobs."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, Final

from hook_layer.storage.s3 import S3Store
from lambdas.finish_job.events import parse_job_event, parse_status_change
from lambdas.finish_job.job_reports import JobReports
from lambdas.finish_job.service import FinishJobService
from lambdas.shared import clients
from lambdas.shared.event_bus import EventBus
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from lambdas.shared.run_states import RunStates
from lambdas.shared.settings import FinishJobSettings
from lambdas.shared.wake import WakeQueue

__all__ = ["lambda_handler"]

_FUNCTION: Final = "finish_job"


@cache
def _telemetry() -> Telemetry:
    return Telemetry(_FUNCTION)


@cache
def _service() -> FinishJobService:
    settings = FinishJobSettings.from_environment(os.environ)
    return FinishJobService(
        bucket_names=settings.tensor_bucket_names,
        registrations=RegistrationTable(clients.dynamodb(), settings.state_table_name),
        queue=WakeQueue(clients.sqs, settings.rule_queue_urls),
        states=RunStates(clients.dynamodb(), settings.state_table_name),
        bus=EventBus(clients.eventbridge, settings.event_bus_name),
        reports=JobReports(lambda uri: S3Store(uri, client=clients.s3()), _telemetry()),
        telemetry=_telemetry(),
    )


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """Wake the evaluators of an ended training job; report on it when all have a verdict.

    Args:
        event: A "SageMaker Training Job State Change" event of SageMaker or Stepwatch.
        context: Lambda's context.

    Returns:
        A response with status 200 that says what was done.
    """
    text = ""
    with _telemetry().invocation(context):
        found = parse_job_event(event, context)
        news = parse_status_change(event)
        if found is not None:
            with _telemetry().job(found.training_job_name):
                num_woken = _service().handle(found)
                text = f"{num_woken} evaluations are due" if num_woken else ""
        elif news is not None:
            with _telemetry().job(news.training_job_name):
                text = "The report is written" if _service().report(news) else ""
    return {"statusCode": 200, "body": json.dumps(text or "Nothing to do")}
