"""SQS in moto: queues that hold a lot, and are used by several threads."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from moto.sqs.models import Queue, SQSBackend

__all__ = ["patch_deletions_beside_other_requests", "patch_retention_of_long_queues"]

_delete_message = Queue.delete_message


@cache
def patch_deletions_beside_other_requests() -> None:
    """Delete a message while nobody sends one to the queue, or deletes another.

    Without it each deletion puts a copy of the list of messages instead of the list: what another
    thread sends meanwhile is lost, and what it deletes is there again.
    """

    def delete_message(self: Any, receipt_handle: str) -> None:
        with self._messages_lock:
            _delete_message(self, receipt_handle)

    Queue.delete_message = delete_message


@cache
def patch_retention_of_long_queues() -> None:
    """Decide from the message and the queue's retention whether to keep a message.

    Without it the whole queue is counted nine times for each message that is received, which takes
    a tenth of a second for ten messages of a thousand.
    """

    def is_message_valid_based_on_retention_period(
        self: Any, queue_name: str, message: Any
    ) -> bool:
        kept_s: float = self.get_queue(queue_name).message_retention_period
        return bool(message.sent_timestamp / 1000 + kept_s > time.time())

    SQSBackend.is_message_valid_based_on_retention_period = (
        is_message_valid_based_on_retention_period
    )
