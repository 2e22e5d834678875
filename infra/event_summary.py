"""Summarizes an unhandled event in one line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["counted", "described", "event_of"]

MAX_LINE = 300
"""Maximum line length, in characters: names and errors come from files of trainings."""
UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))


def event_of(body: str) -> Any:
    """Return the event in a message of a function's failure queue.

    The message is an event that EventBridge could not deliver, or Lambda's record of a failed call.

    Raises:
        ValueError: The message is neither.
    """
    content = json.loads(body)
    if not isinstance(content, dict):
        raise ValueError("no event")  # noqa: TRY004 - the caller expects one kind of error
    is_record = "requestContext" in content and "requestPayload" in content
    return content["requestPayload"] if is_record else content


def described(message: Mapping[str, Any], now: float | None = None) -> str:
    """Return the job, the rule, the age and the error of an event, as far as known."""
    sent_at = int(message.get("Attributes", {}).get("SentTimestamp", 0)) / 1000
    about = [
        *_about(message["Body"]),
        f"waits for {_duration((time.time() if now is None else now) - sent_at)}",
    ]
    error = _error(message)
    line = ", ".join(about) + (f": {error}" if error else "")
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(line.split()))
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def counted(number: int, verb: str = "") -> str:
    """Return the number of events with a verb, e.g. `1 event waits`."""
    text = f"{number} event" + ("" if number == 1 else "s")
    return f"{text} {verb}{'s' if number == 1 else ''}" if verb else text


def _about(body: str) -> Iterator[str]:
    """Yield the job (or the location of its files) and the rules."""
    try:
        event = event_of(body)
    except ValueError:
        yield f"no event: {body:.80}"
        return
    whole = event if isinstance(event, dict) else {}
    detail = whole.get("detail", whole)
    detail = detail if isinstance(detail, dict) else {}
    bucket, key = (_inside(detail, *path) for path in (("bucket", "name"), ("object", "key")))
    place = f"s3://{bucket}/{key}" if bucket and key else ""
    job = detail.get("TrainingJobName") or detail.get("DebugOutputUri") or place
    yield str(job or whole.get("detail-type") or "an event of no job")
    statuses = detail.get("DebugRuleEvaluationStatuses")
    for status in statuses if isinstance(statuses, list) else ():
        if isinstance(status, dict) and "RuleConfigurationName" in status:
            yield f"{status['RuleConfigurationName']} {status.get('RuleEvaluationStatus', '')}"
    if rule := detail.get("Rule"):
        yield str(rule)


def _error(message: Mapping[str, Any]) -> str:
    """Return the error: from Lambda's record, or from EventBridge's attributes."""
    attributes = message.get("MessageAttributes", {})
    told = [attributes.get(name, {}).get("StringValue") for name in ("ERROR_CODE", "ERROR_MESSAGE")]
    try:
        content = json.loads(message["Body"])
    except ValueError:
        content = None
    answer = content.get("responsePayload") if isinstance(content, dict) else None
    if isinstance(answer, dict):
        told += [answer.get("errorType"), answer.get("errorMessage")]
    elif isinstance(content, dict):
        told.append(_inside(content, "requestContext", "condition"))
    return ": ".join(str(part) for part in told if part)


def _inside(content: Mapping[str, Any], first: str, second: str) -> Any:
    inner = content.get(first)
    return inner.get(second) if isinstance(inner, dict) else None


def _duration(seconds: float) -> str:
    for name, length in UNITS:
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {name}" + ("" if number == 1 else "s")
    return "less than a minute"
