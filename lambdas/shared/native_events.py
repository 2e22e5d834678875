"""Checks whether an event is SageMaker's own, for this account and Region, and parses its time.

Only AWS can send with the source `aws.sagemaker`. But a bus may receive events from other accounts
and Regions, where a job can have the same name. They keep their account and Region.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lambdas.contracts.events import NATIVE_SOURCE

__all__ = ["event_time", "is_native_event"]

_REGION, _ACCOUNT = 3, 4
_MIN_PARTS: Final = 5


def is_native_event(event: Mapping[Any, Any], context: object) -> bool:
    """Return whether an event is SageMaker's, from the function's account and Region.

    Args:
        event: An event of EventBridge.
        context: Lambda's context, which names the function. Other objects are accepted for manual
            calls, which check only the source.
    """
    source = event.get("source")
    if not isinstance(source, str) or source != NATIVE_SOURCE:
        return False
    here = str(getattr(context, "invoked_function_arn", "")).split(":")
    if len(here) < _MIN_PARTS:
        return True
    return event.get("account") == here[_ACCOUNT] and event.get("region") == here[_REGION]


def event_time(event: Mapping[Any, Any]) -> float | None:
    """Return the time of an EventBridge event, seconds since the epoch; None if unknown."""
    value = event.get("time")
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
