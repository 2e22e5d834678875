"""Whether an event is SageMaker's own, and about this account; and when it happened.

Nobody but AWS can send with the source `aws.sagemaker`. But a bus may take events from other
accounts and regions, where a job can have the name of one here. They keep the account and the
region that they come from.
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
    """Return whether an event is SageMaker's, of the account and region that a function runs in.

    Args:
        event: An event of EventBridge.
        context: Lambda's context, which names the function; other objects are taken, for calls by
            hand, where only the source counts.
    """
    source = event.get("source")
    if not isinstance(source, str) or source != NATIVE_SOURCE:
        return False
    here = str(getattr(context, "invoked_function_arn", "")).split(":")
    if len(here) < _MIN_PARTS:
        return True
    return event.get("account") == here[_ACCOUNT] and event.get("region") == here[_REGION]


def event_time(event: Mapping[Any, Any]) -> float | None:
    """Return when an event of EventBridge happened, seconds since the epoch; None if unknown."""
    value = event.get("time")
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
