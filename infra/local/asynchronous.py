"""Lambda's asynchronous invocations of one function: retries, then its on-failure destination."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from infra.local.sandbox import Invocation, Sandbox

__all__ = ["QUEUE_NAME_PREFIX", "AsynchronousInvocations", "queue_name"]

logger = logging.getLogger(__name__)

LONG_POLL_S = 5
DEFAULT_RETRIES = 2
DEFAULT_EVENT_AGE_S = 6 * 3600
INITIALISATION_MARGIN_S = 30
QUEUE_NAME_PREFIX = "lambda-async-"
LONGEST_QUEUE_NAME = 80


def queue_name(function_name: str) -> str:
    """Return the name of the queue of a function's asynchronous invocations.

    In Lambda this queue is internal. Here it is an SQS queue that the server writes to, so that no
    event is lost when the poller is killed.
    """
    # The end of a name from CloudFormation makes it unique.
    return QUEUE_NAME_PREFIX + function_name[-(LONGEST_QUEUE_NAME - len(QUEUE_NAME_PREFIX)) :]


class AsynchronousInvocations:
    """Invokes a function with its events, each until it is handled or given up."""

    def __init__(
        self,
        queue_url: str,
        configuration: Mapping[str, Any],
        sandbox: Sandbox,
        sqs: Any,
        *,
        retry_delay_s: int,
    ) -> None:
        """Connect a function and the queue of its asynchronous invocations.

        `configuration` is the response of GetFunctionEventInvokeConfig, or empty. A retry begins
        after `retry_delay_s` seconds; Lambda waits one minute, then two.

        Raises:
            ValueError: The on-failure destination is not an SQS queue.
        """
        on_failure = configuration.get("DestinationConfig", {}).get("OnFailure", {})
        self._destination = on_failure.get("Destination")
        if self._destination and self._destination.split(":")[2] != "sqs":
            raise ValueError(
                f"on-failure destination {self._destination} does not work locally; use SQS"
            )
        self._retries = int(configuration.get("MaximumRetryAttempts", DEFAULT_RETRIES))
        self._event_age_s = int(configuration.get("MaximumEventAgeInSeconds", DEFAULT_EVENT_AGE_S))
        self._retry_delay_s = retry_delay_s
        self._queue_url = queue_url
        self._sandbox = sandbox
        self._sqs = sqs

    def run_once(self) -> int:
        """Wait a few seconds for an event, and invoke the function with it.

        Return the number of invocations, 0 or 1.
        """
        # An event is hidden for the maximum duration of an invocation. It reappears if this process
        # is killed in between.
        hidden_s = self._sandbox.function.timeout_s + INITIALISATION_MARGIN_S
        response = self._sqs.receive_message(
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=1,
            WaitTimeSeconds=LONG_POLL_S,
            VisibilityTimeout=hidden_s,
            MessageSystemAttributeNames=["All"],
        )
        messages = response.get("Messages", [])
        for message in messages:
            self._handle(message)
        return len(messages)

    def _handle(self, message: Mapping[str, Any]) -> None:
        attempts = int(message["Attributes"]["ApproximateReceiveCount"])
        age_s = time.time() - int(message["Attributes"]["SentTimestamp"]) / 1000
        event = json.loads(message["Body"])
        invocation = self._sandbox.invoke(event)
        handle = message["ReceiptHandle"]
        if invocation.error is not None:
            exhausted = attempts > self._retries
            if not exhausted and age_s < self._event_age_s:
                self._sqs.change_message_visibility(
                    QueueUrl=self._queue_url,
                    ReceiptHandle=handle,
                    VisibilityTimeout=self._retry_delay_s,
                )
                return
            condition = "RetriesExhausted" if exhausted else "EventAgeExceeded"
            self._report(event, invocation, attempts, condition)
        self._sqs.delete_message(QueueUrl=self._queue_url, ReceiptHandle=handle)

    def _report(self, event: Any, invocation: Invocation, attempts: int, condition: str) -> None:
        function = self._sandbox.function
        logger.error("%s: %s after %d attempts", function.name, condition, attempts)
        if not self._destination:
            return
        now = dt.datetime.now(dt.timezone.utc)
        record = {
            "version": "1.0",
            "timestamp": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "requestContext": {
                "requestId": invocation.request_id,
                "functionArn": f"{function.arn}:$LATEST",
                "condition": condition,
                "approximateInvokeCount": attempts,
            },
            "requestPayload": event,
            "responseContext": {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": "Unhandled",
            },
            "responsePayload": invocation.error,
        }
        url = self._sqs.get_queue_url(QueueName=self._destination.rpartition(":")[2])["QueueUrl"]
        self._sqs.send_message(QueueUrl=url, MessageBody=json.dumps(record))
