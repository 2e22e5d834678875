"""Decodes a tensor's record by byte positions, from the layout of an earlier record.

Between steps, a tensor's record differs only in time, step and elements. If all other bytes equal
those of a parsed record, no further parsing is needed.
"""

from __future__ import annotations

import re
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from hook_layer.format.checksum import PAYLOAD_CHECKSUM
from hook_layer.format.event_fields import STEP, WALL_TIME
from hook_layer.format.wire import FIXED64, VARINT, key

__all__ = ["RecordLayout"]

_TIME_AT: Final = 13  # after the frame's header and the key of the time
_STEP_AT: Final = _TIME_AT + 9  # after the time and the key of the step
_TIME_KEY: Final = key(WALL_TIME, FIXED64)
_STEP_KEY: Final = key(STEP, VARINT)
_CONTINUED: Final = 0x80  # set in every byte of an integer except the last
_KINDS: Final = frozenset("bfiuc")
_METADATA: Final = re.compile(
    rb"J(?P<lengths>...)\n\tmode_step\x12(?P<length>.)(?P<digits>[0-9]{1,19})"
    rb"\n\t\n\x04mode\x12\x01[1-4]" + re.escape(PAYLOAD_CHECKSUM),
    re.DOTALL,
)
"""Bytes after the elements: mode step and mode."""


class RecordLayout:
    """The constant bytes of a tensor's records, and the positions of the variable ones."""

    __slots__ = ("_after", "_before", "_dtype", "_end", "_head", "_length", "_shape", "_spots")

    def __init__(self, data: bytes, value: npt.NDArray[Any]) -> None:
        self._length = 0  # matches no record
        start = _offset_in(data, value)
        step_end = _STEP_AT
        while step_end < len(data) and data[step_end] & _CONTINUED:
            step_end += 1
        step_end += 1
        if start < step_end or data[12:13] != _TIME_KEY or data[21:22] != _STEP_KEY:
            return
        end = start + value.nbytes
        after = data[end:]
        metadata = _METADATA.fullmatch(after)
        if metadata is None:
            return
        digits, digits_end = metadata.span("digits")
        num_digits = digits_end - digits
        if metadata["lengths"] != bytes((26 + num_digits, 10, 13 + num_digits)):
            return
        if metadata["length"] != bytes((num_digits,)):
            return
        self._head = data[:_TIME_AT]
        self._before = data[step_end:start]
        self._after = (after[:digits], after[digits_end:])
        self._spots = (step_end, start, end + digits, end + digits_end)
        self._end = end
        self._dtype = value.dtype
        self._shape = value.shape
        self._length = len(data)

    def value(self, data: bytes, crc32c: int | None) -> npt.NDArray[Any] | None:
        """Return the tensor of another, untrusted record; None if it must be parsed.

        `crc32c` is the true checksum from the index file, if it has one.
        """
        if len(data) != self._length:
            return None
        step_end, start, digits, digits_end = self._spots
        if not (
            data.startswith(self._head)
            and data.startswith(_STEP_KEY, _STEP_AT - 1)
            and data.startswith(self._before, step_end)
            and data.startswith(self._after[0], self._end)
            and data.endswith(self._after[1])
            and data[digits:digits_end].isdigit()
            and _is_varint(data, step_end)
            and (crc32c is None or google_crc32c.value(data) == crc32c)
        ):
            return None
        values = np.frombuffer(
            data, self._dtype, (self._end - start) // self._dtype.itemsize, start
        )
        return values.reshape(self._shape)


def _is_varint(data: bytes, end: int) -> bool:
    """Return whether the step's integer ends at this position, and not before."""
    last = end - 1
    if data[last] & _CONTINUED:
        return False
    return all(byte & _CONTINUED for byte in data[_STEP_AT:last])


def _offset_in(data: bytes, value: npt.NDArray[Any]) -> int:
    """Return the position of a tensor's elements in the bytes; -1 if they are not there."""
    if not value.nbytes or value.dtype.kind not in _KINDS or not value.flags.c_contiguous:
        return -1
    first = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    offset: int = value.__array_interface__["data"][0] - first
    return offset if 0 <= offset <= len(data) - value.nbytes else -1
