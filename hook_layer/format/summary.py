"""Event files for TensorBoard: scalars and histograms.

Records have the frames of event files (`hook_layer.format.records`), but their last field is the
true checksum of the message, which TensorBoard verifies. Field numbers are those of TensorFlow's
`event.proto` and `summary.proto`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hook_layer.format import event_fields as number
from hook_layer.format.checksum import frame_header, masked_crc32c
from hook_layer.format.wire import FIXED32, FIXED64, VARINT, chunk, key, varint

__all__ = [
    "HistogramSummary",
    "clean_tag",
    "encode_file_head",
    "encode_histogram",
    "encode_scalar",
    "summary_file_key",
]

_FILE_VERSION: Final = b"brain.Event:2"
_SESSION_START: Final = 1

# Field numbers of Event, SessionLog, Summary.Value and HistogramProto that only summaries need.
_VERSION, _SESSION_LOG = 3, 7
_STATUS: Final = 1
_SIMPLE_VALUE, _HISTOGRAM = 2, 5
_BUCKET_LIMIT, _BUCKET = 6, 7

_ILLEGAL_IN_TAGS: Final = re.compile(r"[^-/\w\.]")


@dataclass(frozen=True)
class HistogramSummary:
    """A histogram of finite numbers.

    Attributes:
        limits: Right limits of the buckets, increasing; a number on a limit is in the next bucket.
        counts: Number of values in each bucket.
    """

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    limits: Sequence[float]
    counts: Sequence[float]


def clean_tag(name: str) -> str:
    """Return `name` as a tag: characters except letters, digits and `-_./` become `_`."""
    return _ILLEGAL_IN_TAGS.sub("_", name).lstrip("/")


def summary_file_key(folder: str, step: int, writer: str) -> str:
    """Return the key of a summary file that begins at a global step.

    The folder is a run in TensorBoard's sense, e.g. `TRAIN`; the writer is a process, e.g.
    `4711_node-3`.
    """
    return f"{folder}/{step:012d}_{writer}.tfevents"


def encode_file_head(step: int, wall_time: float, *, is_restart: bool = False) -> bytes:
    """Return the beginning of a file that starts at a global step.

    After a restart, readers discard this step and later ones from earlier files, because an
    interrupted training continues here.
    """
    head = _record(0, wall_time, chunk(_VERSION, _FILE_VERSION))
    if is_restart:
        start = key(_STATUS, VARINT) + varint(_SESSION_START)
        head += _record(step, wall_time, chunk(_SESSION_LOG, start))
    return head


def encode_scalar(tag: str, value: float, step: int, wall_time: float) -> bytes:
    """Return the record of a number; values beyond float32 become infinite."""
    return _value_record(tag, key(_SIMPLE_VALUE, FIXED32) + _float32(value), step, wall_time)


def encode_histogram(tag: str, histogram: HistogramSummary, step: int, wall_time: float) -> bytes:
    """Return the record of a histogram."""
    h = histogram
    sums = enumerate((h.min, h.max, h.num, h.sum, h.sum_squares), start=1)
    message = [key(field, FIXED64) + struct.pack("<d", value) for field, value in sums]
    for field, values in ((_BUCKET_LIMIT, h.limits), (_BUCKET, h.counts)):
        message.append(chunk(field, struct.pack(f"<{len(values)}d", *values)))
    return _value_record(tag, chunk(_HISTOGRAM, b"".join(message)), step, wall_time)


def _value_record(tag: str, value: bytes, step: int, wall_time: float) -> bytes:
    summary = chunk(number.VALUE, chunk(number.TAG, tag.encode()) + value)
    return _record(step, wall_time, chunk(number.SUMMARY, summary))


def _record(step: int, wall_time: float, content: bytes) -> bytes:
    """Return an Event, framed."""
    at = key(number.WALL_TIME, FIXED64) + struct.pack("<d", wall_time)
    if step:
        at += key(number.STEP, VARINT) + varint(step)
    payload = at + content
    return frame_header(len(payload)) + payload + struct.pack("<I", masked_crc32c(payload))


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))
