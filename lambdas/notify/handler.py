"""Entry point of the function that sends messages about findings."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from hook_layer.storage.s3 import S3Store
from lambdas.notify.events import parse_event
from lambdas.notify.sent_notices import SentNotices
from lambdas.notify.service import NotifyService
from lambdas.shared import clients
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from lambdas.shared.run_states import RunStates
from lambdas.shared.settings import NotifySettings
from lambdas.shared.stop_table import StopTable

__all__ = ["lambda_handler"]

_FUNCTION: Final = "notify"


@cache
def _telemetry() -> Telemetry:
    return Telemetry(_FUNCTION)


@cache
def _service() -> NotifyService:
    settings = NotifySettings.from_environment(os.environ)
    table_name = settings.state_table_name
    return NotifyService(
        settings,
        states=RunStates(clients.dynamodb(), table_name),
        registrations=RegistrationTable(clients.dynamodb(), table_name),
        stops=StopTable(clients.dynamodb(), table_name),
        sent=SentNotices(clients.dynamodb(), table_name),
        topic=clients.sns,
        open_store=lambda uri: S3Store(uri, client=clients.s3()),
        telemetry=_telemetry(),
    )


def lambda_handler(event: Any, context: Any) -> None:
    """Send one message for each change in an event.

    Args:
        event: A "SageMaker Training Job State Change" event of SageMaker or Stepwatch, or a
            "Stepwatch Stop Overdue" event.
        context: Lambda's context.
    """
    with _telemetry().invocation(context):
        news = parse_event(event, context)
        if news:
            with _telemetry().job(news[0].training_job_name, news[0].run_id):
                _service().tell(news)
