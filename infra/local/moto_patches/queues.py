"""SQS in moto: long queues, and concurrent use by threads and processes."""

from __future__ import annotations

import select
import socket
import time
from functools import cache
from typing import Any

from flask import has_request_context, request
from moto.sqs.models import Queue, SQSBackend

__all__ = [
    "patch_deletions_beside_other_requests",
    "patch_long_polls_of_dead_consumers",
    "patch_retention_of_long_queues",
]

LOOK_S = 0.2

_receive_message = SQSBackend.receive_message
_delete_message = Queue.delete_message


@cache
def patch_deletions_beside_other_requests() -> None:
    """Serialize deletions with other requests to a queue.

    Without it each deletion replaces the list of messages by a copy: messages that another thread
    sends meanwhile are lost, and messages that it deletes reappear.
    """

    def delete_message(self: Any, receipt_handle: str) -> None:
        with self._messages_lock:
            _delete_message(self, receipt_handle)

    Queue.delete_message = delete_message


@cache
def patch_retention_of_long_queues() -> None:
    """Decide from the message and the queue's retention whether to keep a message.

    Without it the whole queue is counted nine times per received message, which takes a tenth of a
    second for ten messages of a thousand.
    """

    def is_message_valid_based_on_retention_period(
        self: Any, queue_name: str, message: Any
    ) -> bool:
        kept_s: float = self.get_queue(queue_name).message_retention_period
        return bool(message.sent_timestamp / 1000 + kept_s > time.time())

    SQSBackend.is_message_valid_based_on_retention_period = (
        is_message_valid_based_on_retention_period
    )


@cache
def patch_long_polls_of_dead_consumers() -> None:
    """End a long poll when its consumer has disconnected.

    Without it the next message goes to nobody, and reappears only after its visibility timeout, six
    times that of a function. A reappearing message is also seen up to a second late.
    """

    def receive_message(
        self: Any,
        queue_name: str,
        count: int,
        wait_seconds_timeout: int,
        *arguments: Any,
        **options: Any,
    ) -> list[Any]:
        queue = self.get_queue(queue_name)
        ends = time.monotonic() + (wait_seconds_timeout or 0)
        while True:
            left_s = ends - time.monotonic()
            if left_s > 0:
                queue.wait_for_messages(min(left_s, LOOK_S))
                if _consumer_is_gone():
                    return []
            messages: list[Any] = _receive_message(
                self, queue_name, count, 0, *arguments, **options
            )
            if messages or left_s <= 0:
                return messages

    SQSBackend.receive_message = receive_message


def _consumer_is_gone() -> bool:
    """Return whether the client has closed this request's connection."""
    connection = request.environ.get("werkzeug.socket") if has_request_context() else None
    if not isinstance(connection, socket.socket):
        return False
    readable, _, _ = select.select([connection], [], [], 0)
    # A client that waits for a response sends nothing, so readable data is the end of file.
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
