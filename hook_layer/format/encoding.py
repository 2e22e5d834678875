"""Encodes tensor records: framing, checksums and the event message around a tensor's bytes.

The bytes around a tensor's content differ between steps only in step and time. So they are created
once per name and shape, and cached.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from hook_layer.format import event_fields as number
from hook_layer.format.checksum import PAYLOAD_CHECKSUM, frame_header
from hook_layer.format.dtypes import PLAIN_TAGS, normalized, tag_of
from hook_layer.format.errors import UnsupportedDtypeError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.wire import FIXED64, LENGTH_DELIMITED, VARINT, chunk, key, varint

__all__ = ["EncodedRecord", "EventBuffers", "StepEncoder"]

_MAX_JOINED_BYTES: Final = 32 << 10
"""Content up to this length is copied, which is faster than handling its record in pieces."""
_PIECE_BYTES: Final = 256 << 10
"""Number of bytes per checksum call, which are still in the CPU cache when they are written."""


class EncodedRecord:
    """An encoded record.

    Attributes:
        buffers: The record in pieces; a large tensor's piece is a view of the tensor's memory.
        length: Length of the whole record in bytes.
    """

    __slots__ = ("_checksum", "buffers", "length")

    def __init__(
        self, buffers: tuple[bytes | memoryview, ...], length: int, checksum: int | None = None
    ) -> None:
        self.buffers = buffers
        self.length = length
        self._checksum = checksum

    @property
    def crc32c(self) -> int:
        """CRC-32C of the whole record."""
        if self._checksum is None:
            deque(self.pieces(), maxlen=0)
        return self._checksum or 0

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the record in pieces; each has just been read for the checksum."""
        if self._checksum is not None:
            yield from self.buffers
            return
        checksum = 0
        for buffer in self.buffers:
            if isinstance(buffer, bytes):
                checksum = google_crc32c.extend(checksum, buffer)
                yield buffer
                continue
            array = np.frombuffer(buffer, np.uint8)  # the library accepts no memory views
            for start in range(0, len(array), _PIECE_BYTES):
                stop = start + _PIECE_BYTES
                checksum = google_crc32c.extend(checksum, array[start:stop])
                yield buffer[start:stop]
        self._checksum = checksum


class EventBuffers:
    """Content of an event file, which can be read several times.

    Checksums of large tensors are computed during the first read, so that a writer reads their
    memory only once.
    """

    def __init__(self) -> None:
        self.records: list[EncodedRecord] = []
        self.nbytes = 0

    def append(self, record: EncodedRecord) -> None:
        """Add a record at the end."""
        self.records.append(record)
        self.nbytes += record.length

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for record in self.records:
            if len(record.buffers) == 1:
                yield record.buffers[0]
            else:
                yield from record.pieces()


class StepEncoder:
    """Encodes the tensors of one step; times are seconds since 1970."""

    def __init__(self, *, step: int, mode: ModeKeys, mode_step: int, wall_time: float) -> None:
        self._step = key(number.STEP, VARINT) + varint(step) if step else b""
        self._start = _time_field(wall_time) + self._step
        self._end = _metadata(mode, mode_step) + PAYLOAD_CHECKSUM

    def encode(
        self, name: str, value: npt.NDArray[Any], *, wall_time: float | None = None
    ) -> EncodedRecord:
        """Encode one tensor of any shape; large little-endian contiguous arrays are not copied.

        Raises:
            UnsupportedDtypeError: The format has no tag for the array's type.
        """
        start = self._start if wall_time is None else _time_field(wall_time) + self._step
        end = self._end
        tag = PLAIN_TAGS.get(value.dtype)
        content: bytes | None = None
        if tag is None and value.dtype.kind in "USO":
            tag = 0
            content = b"".join(chunk(number.STRING, _string_bytes(text)) for text in value.flat)
        elif tag is None:
            value = normalized(value)
            tag = tag_of(value.dtype)
        num_bytes = value.nbytes if content is None else len(content)
        lengths = len(start), num_bytes, len(end)
        header, rest, length = _frame(name, value.shape, tag, lengths)
        if content is None and num_bytes > _MAX_JOINED_BYTES:
            head = b"".join((header, start, rest))
            return EncodedRecord((head, _bytes_of(value), end), length)
        if content is None:
            content = value.tobytes()
        data = b"".join((header, start, rest, content, end))
        return EncodedRecord((data,), length, google_crc32c.value(data))


@lru_cache(maxsize=1 << 14)
def _frame(
    name: str, shape: tuple[int, ...], tag: int, lengths: tuple[int, int, int]
) -> tuple[bytes, bytes, int]:
    """Return the constant parts of a tensor's records.

    `lengths` are those of time and step, of the content, and of the bytes after it. The result is
    the bytes before the time, the bytes between step and content, and the record's length.
    """
    start, content, end = lengths
    behind = content + end - len(PAYLOAD_CHECKSUM)
    head = _value_head(name, shape, tag, content)
    value_key = key(number.VALUE, LENGTH_DELIMITED) + varint(len(head) + behind)
    summary = varint(len(value_key) + len(head) + behind)
    rest = key(number.SUMMARY, LENGTH_DELIMITED) + summary + value_key + head
    header = frame_header(start + len(rest) + behind)
    return header, rest, len(header) + start + len(rest) + content + end


def _value_head(name: str, shape: tuple[int, ...], tag: int, content_bytes: int) -> bytes:
    """Return the bytes of a summary value before its content."""
    tensor = key(number.DTYPE, VARINT) + varint(tag) if tag else b""
    tensor += chunk(number.SHAPE, b"".join(_dimension(name, length) for length in shape))
    if tag and content_bytes:
        tensor += key(number.CONTENT, LENGTH_DELIMITED) + varint(content_bytes)
    tensor_key = key(number.TENSOR, LENGTH_DELIMITED) + varint(len(tensor) + content_bytes)
    return chunk(number.TAG, name.encode()) + tensor_key + tensor


def _metadata(mode: ModeKeys, mode_step: int) -> bytes:
    """Return the metadata of a summary value; the same for all tensors of a step."""
    plugins = _plugin(number.MODE_STEP_PLUGIN, mode_step), _plugin(number.MODE_PLUGIN, mode.value)
    return chunk(number.METADATA, b"".join(plugins))


def _bytes_of(value: npt.NDArray[Any]) -> memoryview:
    try:
        return value.data.cast("B")
    except (TypeError, ValueError):  # not contiguous, or a type that memory views do not support
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _time_field(wall_time: float) -> bytes:
    return key(number.WALL_TIME, FIXED64) + struct.pack("<d", wall_time) if wall_time else b""


def _dimension(name: str, length: int) -> bytes:
    size = key(number.SIZE, VARINT) + varint(length) if length else b""
    return chunk(
        number.DIMENSION,
        size + chunk(number.DIMENSION_NAME, f"{name}_{length}".encode()),
    )


def _string_bytes(text: object) -> bytes:
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    raise UnsupportedDtypeError(
        f"an object array must have only strings, not a {type(text).__name__}"
    )


@lru_cache(maxsize=64)
def _plugin(name: str, content: int) -> bytes:
    entry = chunk(number.PLUGIN_NAME, name.encode()) + chunk(
        number.PLUGIN_CONTENT, str(content).encode()
    )
    return chunk(number.PLUGIN, entry)
