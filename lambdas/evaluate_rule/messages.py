"""Parses messages of a queue: a new object of a trial, or a wake for a run.

A message without effect raises `IgnoredMessageError` before any other request, so that it is logged
and dropped instead of being delivered again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hook_layer.format.errors import PathError
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE, split_object_key
from hook_layer.storage.base import check_key
from lambdas.contracts.events import MAX_ROOT_BYTES, WAKE_DETAIL_TYPE
from lambdas.shared.event_bus import event_time
from lambdas.shared.wake import InvalidWakeError, Wake

__all__ = ["IgnoredMessageError", "TensorObject", "parse_message"]

_OBJECT_CREATED: Final = "Object Created"
_OTHER_FILES: Final = (JOB_FILE, STOP_FILE)


class IgnoredMessageError(ValueError):
    """A message that requires no evaluation; the text says why.

    Attributes:
        is_expected: True for normal side effects of the bucket's events, False for faulty messages.
    """

    def __init__(self, reason: str, *, is_expected: bool = False) -> None:
        super().__init__(reason)
        self.is_expected = is_expected


@dataclass(frozen=True)
class TensorObject:
    """A new object in a trial.

    Attributes:
        root_uri: The trial's root, ending in "/".
        key: The object's key inside it: an index file or the end marker.
        created_at: Creation time of the object, seconds since the epoch; None if unknown.
        size: Its size in bytes; 0 if unknown.
    """

    root_uri: str
    key: str
    created_at: float | None
    size: int = 0

    @property
    def is_end_marker(self) -> bool:
        """Return whether the object is the end marker."""
        return self.key == END_MARKER


def parse_message(body: str, bucket_names: Collection[str]) -> TensorObject | Wake:
    """Parse a message's body into a new object or a wake.

    Args:
        body: An EventBridge event of S3 as JSON, or a wake from another function. An event's object
            key is not URL-encoded, unlike the keys in S3's own notifications.
        bucket_names: Watched buckets.

    Raises:
        IgnoredMessageError: The message requires no evaluation.
    """
    event = _event(body)
    kind = event.get("detail-type")
    if kind == WAKE_DETAIL_TYPE:
        try:
            return Wake.of_event(event, bucket_names)
        except InvalidWakeError as error:
            raise IgnoredMessageError(str(error)) from None
    if kind != _OBJECT_CREATED:
        raise IgnoredMessageError(f"an event of type {kind!r:.80}", is_expected=True)
    detail = event.get("detail")
    bucket = _text_at(detail, "bucket", "name")
    key = _text_at(detail, "object", "key")
    if bucket not in bucket_names:
        raise IgnoredMessageError(f"the bucket {bucket!r:.80} is not watched")
    try:
        root, relative = split_object_key(key)
    except PathError as error:
        raise IgnoredMessageError(str(error)[:400]) from None
    if relative in _OTHER_FILES:
        raise IgnoredMessageError(f"{relative} requires no evaluation", is_expected=True)
    _check_path(root, relative)
    return TensorObject(f"s3://{bucket}/{root}", relative, event_time(event), _size(detail))


def _event(body: str) -> Mapping[str, Any]:
    try:
        event = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise IgnoredMessageError(f"the body is not JSON: {error}"[:400]) from None
    if not isinstance(event, dict):
        raise IgnoredMessageError(f"the body is not an event but {type(event).__name__}")
    return event


def _text_at(detail: object, *path: str) -> str:
    value = detail
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value:
        raise IgnoredMessageError(f"the event's detail has no {'.'.join(path)}")
    return value


def _size(detail: Any) -> int:
    size = detail["object"].get("size")
    return size if type(size) is int and size > 0 else 0


def _check_path(root: str, relative: str) -> None:
    try:
        # A store rejects keys with empty or relative parts.
        check_key(root + relative)
    except ValueError as error:
        raise IgnoredMessageError(str(error)) from None
    if len(root.encode()) > MAX_ROOT_BYTES:
        raise IgnoredMessageError(f"the root is longer than {MAX_ROOT_BYTES} bytes")
