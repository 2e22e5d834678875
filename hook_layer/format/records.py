"""Tensor records of event files: framing, checksums and the event message.

A record is `length u64 | masked CRC of the length u32 | event message | CRC field u32`. The last
field is the constant that the original writes and expects. The index file has the true CRC-32C of
the whole record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.checksum import PAYLOAD_CHECKSUM, crc32c, frame_header, masked_crc32c
from hook_layer.format.encoding import EncodedRecord, EventBuffers, StepEncoder
from hook_layer.format.errors import RecordError
from hook_layer.format.message import TensorRecord, parse_event
from hook_layer.format.modes import ModeKeys

__all__ = [
    "EncodedRecord",
    "EventBuffers",
    "StepEncoder",
    "TensorRecord",
    "decode_record",
    "encode_record",
    "read_records",
    "to_array",
]

_HEADER: Final = struct.Struct("<QI")
_LENGTH: Final = struct.Struct("<Q")
_FOOTER_BYTES: Final = 4


def encode_record(
    name: str,
    value: npt.NDArray[Any],
    *,
    step: int,
    mode: ModeKeys,
    mode_step: int,
    wall_time: float,
) -> EncodedRecord:
    """Encode one tensor of one step; for several tensors `StepEncoder` is faster.

    Raises:
        UnsupportedDtypeError: The format has no tag for the array's type.
    """
    encoder = StepEncoder(step=step, mode=mode, mode_step=mode_step, wall_time=wall_time)
    return encoder.encode(name, value)


def decode_record(
    buffer: bytes | memoryview, *, file: str, offset: int = 0, crc32c: int | None = None
) -> TensorRecord:
    """Decode the single record in `buffer`, from its length field to its CRC field.

    File and offset are for errors. `crc32c`, the true checksum from the index file, is verified.

    Raises:
        RecordError: The record is truncated, damaged, or followed by other bytes.
    """
    view = memoryview(buffer).cast("B")
    record, end = _decode_at(view, 0, file=file, offset=offset, expected_crc32c=crc32c)
    if end != len(view):
        raise RecordError(
            f"{len(view) - end} bytes follow the record", file=file, offset=offset + end
        )
    return record


def read_records(buffer: bytes | memoryview, *, file: str) -> Iterator[tuple[int, TensorRecord]]:
    """Yield `(offset, record)` for every record of an event file.

    Raises:
        RecordError: The file is truncated or damaged.
    """
    view = memoryview(buffer).cast("B")
    position = 0
    while position < len(view):
        record, end = _decode_at(view, position, file=file, offset=position)
        yield position, record
        position = end


def _decode_at(
    view: memoryview,
    position: int,
    *,
    file: str,
    offset: int,
    expected_crc32c: int | None = None,
) -> tuple[TensorRecord, int]:
    """Decode the record at `position`; return it and the position after it."""
    available = len(view) - position
    if available < _HEADER.size + _FOOTER_BYTES:
        raise RecordError(f"truncated record of {available} bytes", file=file, offset=offset)
    (payload_bytes,) = _LENGTH.unpack_from(view, position)
    if frame_header(payload_bytes) != view[position : position + _HEADER.size]:
        raise RecordError("the checksum of the record's length is wrong", file=file, offset=offset)
    if payload_bytes > available - _HEADER.size - _FOOTER_BYTES:
        raise RecordError(
            f"the record claims {payload_bytes} bytes where "
            f"{available - _HEADER.size - _FOOTER_BYTES} are left",
            file=file,
            offset=offset,
        )
    start = position + _HEADER.size
    stop = start + payload_bytes
    end = stop + _FOOTER_BYTES
    _verify(view[position:end], expected_crc32c, file=file, offset=offset)
    record = parse_event(view[start:stop], file=file, offset=offset + _HEADER.size)
    return record, end


def _verify(record: memoryview, expected: int | None, *, file: str, offset: int) -> None:
    """Check the true CRC, from the index or, for other writers, from the record."""
    if expected is not None and crc32c([record]) != expected:
        raise RecordError(
            "the record's checksum is not the one in the index file", file=file, offset=offset
        )
    field = bytes(record[-_FOOTER_BYTES:])
    if field == PAYLOAD_CHECKSUM:
        return
    payload = bytes(record[_HEADER.size : -_FOOTER_BYTES])
    if struct.pack("<I", masked_crc32c(payload)) != field:
        raise RecordError("the record's checksum is wrong", file=file, offset=offset)


def to_array(value: object) -> npt.NDArray[Any]:
    """Return `value` as an array like the original; Python scalars get shape (1,)."""
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    return array.reshape(1) if array.ndim == 0 else array
