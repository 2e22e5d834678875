"""Estimates what a call of a function costs, at list prices."""

from __future__ import annotations

import math
import os
from typing import Final

from lambdas.contracts.prices import Prices

__all__ = ["call_dollars", "request_dollars"]

_PRICES: Final = Prices()
_TABLE_WRITES: Final = ("DeleteItem", "PutItem", "UpdateItem")
_REQUESTS: Final = {
    "GetObject": _PRICES.s3_read,
    "HeadObject": _PRICES.s3_read,
    "ListObjectsV2": _PRICES.s3_write,
    "PutObject": _PRICES.s3_write,
    "GetItem": _PRICES.table_read_unit,
    "Query": _PRICES.table_read_unit,
    **dict.fromkeys(_TABLE_WRITES, _PRICES.table_write_unit),
    "PutEvents": _PRICES.event,
    "SendMessage": _PRICES.queue_request,
    "SendMessageBatch": _PRICES.queue_request,
    "ChangeMessageVisibility": _PRICES.queue_request,
    "ChangeMessageVisibilityBatch": _PRICES.queue_request,
}
"""Dollars by operation; others are free."""
_WRITE_UNIT_BYTES: Final = 1024
_MESSAGES_A_REMOVAL: Final = 10
"""Maximum number of messages that Lambda's pollers delete by one request."""
_MEMORY_MB: Final = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"


def request_dollars(operation: str, num_bytes: int) -> float:
    """Return the price of a request.

    Args:
        operation: Its name, such as `PutItem`.
        num_bytes: Length of its body. A write of the table is billed by size.
    """
    units = math.ceil(num_bytes / _WRITE_UNIT_BYTES) if operation in _TABLE_WRITES else 1
    return _REQUESTS.get(operation, 0.0) * units


def call_dollars(seconds: float, num_messages: int) -> float:
    """Return the price of a call besides its own requests.

    Args:
        seconds: Its duration.
        num_messages: Messages of a queue that caused it. Each was sent and received by a request.
    """
    architecture = "arm64" if os.uname().machine == "aarch64" else "x86_64"
    gb_seconds = seconds * int(os.environ.get(_MEMORY_MB, "0")) / 1024
    requests = 2 * num_messages + math.ceil(num_messages / _MESSAGES_A_REMOVAL)
    of_queue = requests * _PRICES.queue_request
    return _PRICES.call + gb_seconds * _PRICES.gb_second(architecture) + of_queue
