"""Estimates what a call of a function costs, at list prices."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Final

from lambdas.contracts.prices import Prices

__all__ = ["call_dollars", "requests_dollars"]

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
_MESSAGES_A_REMOVAL: Final = 10
"""Maximum number of messages that Lambda's pollers delete by one request."""
_MEMORY_MB: Final = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"


def requests_dollars(requests: Mapping[tuple[str, int], int]) -> float:
    """Return the price of requests.

    Args:
        requests: Their number by operation and KiB of the body. Writes of the table are billed by
            KiB.
    """
    return sum(
        number * _REQUESTS.get(operation, 0.0) * (kibibytes if operation in _TABLE_WRITES else 1)
        for (operation, kibibytes), number in requests.items()
    )


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
