"""CRC-32C (Castagnoli) and the masked form that record frames carry."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

import google_crc32c
import numpy as np

__all__ = ["PAYLOAD_CHECKSUM", "crc32c", "frame_header", "masked_crc32c"]

_MASK_DELTA = 0xA282EAD8


def crc32c(buffers: Iterable[bytes | memoryview]) -> int:
    """Return the CRC-32C of the buffers' concatenation, without joining them."""
    checksum = 0
    for buffer in buffers:
        # The library accepts bytes and arrays without a copy, but no memory views.
        data = buffer if isinstance(buffer, bytes) else np.frombuffer(buffer, np.uint8)
        checksum = google_crc32c.extend(checksum, data)
    return checksum


@lru_cache(maxsize=1 << 14)
def frame_header(payload_bytes: int) -> bytes:
    """Return the header of a payload: its length, and the masked CRC-32C of the length."""
    length = struct.pack("<Q", payload_bytes)
    return length + struct.pack("<I", masked_crc32c(length))


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data` rotated right by 15 and offset, as TFRecord frames store it."""
    checksum: int = google_crc32c.value(data)
    rotated = (checksum >> 15) | ((checksum << 17) & 0xFFFFFFFF)
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF


PAYLOAD_CHECKSUM = struct.pack("<I", masked_crc32c(b"0x12345678"))
"""The constant that the original writes after every payload instead of a checksum."""
