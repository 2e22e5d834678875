"""Lambda's poller of one SQS queue: batches, batching window, partial failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from infra.local.sandbox import Invocation, Sandbox

__all__ = ["EventSource", "failed_identifiers", "to_record"]

logger = logging.getLogger(__name__)

LONG_POLL_S = 5
LARGEST_RECEIVE = 10  # maximum of SQS
LARGEST_DELETE = 10
PARTIAL_FAILURES = "ReportBatchItemFailures"


class EventSource:
    """Passes messages of one queue to one function, as configured in an event source mapping."""

    def __init__(
        self, mapping: Mapping[str, Any], queue_url: str, sandbox: Sandbox, sqs: Any
    ) -> None:
        """Connect a queue and a function."""
        self._queue_arn = mapping["EventSourceArn"]
        self._queue_url = queue_url
        self._batch_size = int(mapping["BatchSize"])
        self._batching_window_s = int(mapping.get("MaximumBatchingWindowInSeconds", 0))
        self._partial_failures = PARTIAL_FAILURES in mapping.get("FunctionResponseTypes", [])
        self._sandbox = sandbox
        self._sqs = sqs

    def run_once(self) -> int:
        """Wait a few seconds for messages, handle one batch, and return its size."""
        messages = self._collect()
        if messages:
            records = [to_record(m, self._queue_arn) for m in messages]
            invocation = self._sandbox.invoke({"Records": records})
            self._delete(self._succeeded(messages, invocation))
        return len(messages)

    def _collect(self) -> list[dict[str, Any]]:
        messages = self._receive(self._batch_size, LONG_POLL_S)
        if not messages:
            return []
        closes = time.monotonic() + self._batching_window_s
        while len(messages) < self._batch_size:
            left_s = closes - time.monotonic()
            if left_s <= 0:
                break
            # SQS waits for whole seconds, so the last partial second polls without waiting.
            more = self._receive(self._batch_size - len(messages), int(left_s))
            messages += more
            if not more and left_s < 1:
                time.sleep(min(left_s, 0.05))
        return messages

    def _receive(self, count: int, wait_s: int) -> list[dict[str, Any]]:
        response = self._sqs.receive_message(
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=min(count, LARGEST_RECEIVE),
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        received: list[dict[str, Any]] = response.get("Messages", [])
        return received

    def _succeeded(
        self, messages: list[dict[str, Any]], invocation: Invocation
    ) -> list[dict[str, Any]]:
        if invocation.error is not None:
            return []
        if not self._partial_failures:
            return messages
        sent = {message["MessageId"] for message in messages}
        failed = failed_identifiers(invocation.payload, sent)
        if failed is None:
            logger.error("%s: unusable batch response, all failed", self._sandbox.function.name)
            return []
        return [message for message in messages if message["MessageId"] not in failed]

    def _delete(self, messages: list[dict[str, Any]]) -> None:
        for start in range(0, len(messages), LARGEST_DELETE):
            part = messages[start : start + LARGEST_DELETE]
            self._sqs.delete_message_batch(
                QueueUrl=self._queue_url,
                Entries=[
                    {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
                    for index, message in enumerate(part)
                ],
            )


def to_record(message: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    """Return a message in the format of a function's event."""
    attributes = {
        name: {
            "dataType": value["DataType"],
            **({"stringValue": value["StringValue"]} if "StringValue" in value else {}),
            "stringListValues": [],
            "binaryListValues": [],
        }
        for name, value in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": attributes,
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }


def failed_identifiers(payload: Any, sent: set[str]) -> set[str] | None:
    """Return the ids of failed messages in a handler's report, by Lambda's rules.

    Return None for a report that makes the whole batch fail: with an unknown id, or in another
    format than `{"batchItemFailures": [{"itemIdentifier": id}]}`.
    """
    if payload is None:
        return set()
    failures = payload.get("batchItemFailures") if isinstance(payload, dict) else ()
    if failures is None:
        return set()
    if not isinstance(failures, list):
        return None
    identifiers = [f.get("itemIdentifier") if isinstance(f, dict) else None for f in failures]
    return {str(i) for i in identifiers} if sent.issuperset(identifiers) else None
