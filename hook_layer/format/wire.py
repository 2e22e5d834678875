"""The part of the protocol-buffer wire format that event files use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from hook_layer.format.errors import RecordError

__all__ = [
    "FIXED32",
    "FIXED64",
    "LENGTH_DELIMITED",
    "VARINT",
    "FieldReader",
    "chunk",
    "fields",
    "key",
    "varint",
]

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_MAX_BYTE = 0x7F  # a byte without a following one
_UINT64 = 1 << 64
_MAX_STEP_DIGITS = 19
_WIRE_TYPE_NAMES = {VARINT: "an integer", FIXED64: "eight bytes", LENGTH_DELIMITED: "bytes"}


def varint(number: int) -> bytes:
    """Encode an integer; negative ones as 64-bit two's complement."""
    if 0 <= number <= _MAX_BYTE:
        return bytes((number,))
    number %= _UINT64
    encoded = bytearray()
    while number > _MAX_BYTE:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def chunk(field: int, data: bytes) -> bytes:
    """Encode a field of bytes."""
    return key(field, LENGTH_DELIMITED) + varint(len(data)) + data


@lru_cache
def key(field: int, wire_type: int) -> bytes:
    """Encode the key before a field's value."""
    return varint(field << 3 | wire_type)


def fields(
    message: memoryview, *, file: str, offset: int
) -> Iterator[tuple[int, int, int | memoryview, int]]:
    """Yield `(field number, wire type, value, offset of the value)` of every field of a message.

    Varints are unsigned integers; all other values are views of `message`.

    Raises:
        RecordError: The bytes are not a message, or a length exceeds its end.
    """
    position, end = 0, len(message)
    while position < end:
        tag = message[position]
        position += 1
        if tag > _MAX_BYTE:
            tag, position = _read_varint(message, position - 1, file=file, offset=offset)
        field, wire_type = tag >> 3, tag & 0x7
        if wire_type == VARINT:
            start = position
            number, position = _read_varint(message, position, file=file, offset=offset)
            yield field, wire_type, number, offset + start
            continue
        if wire_type == LENGTH_DELIMITED:
            length = message[position] if position < end else _MAX_BYTE + 1
            position += 1
            if length > _MAX_BYTE:
                length, position = _read_varint(message, position - 1, file=file, offset=offset)
        elif wire_type in (FIXED64, FIXED32):
            length = 8 if wire_type == FIXED64 else 4
        else:
            raise RecordError(
                f"field {field} has the unknown wire type {wire_type}",
                file=file,
                offset=offset + position,
            )
        if length > end - position:
            raise RecordError(
                f"field {field} claims {length} bytes where {end - position} are left",
                file=file,
                offset=offset + position,
            )
        yield field, wire_type, message[position : position + length], offset + position
        position += length


def _read_varint(message: memoryview, position: int, *, file: str, offset: int) -> tuple[int, int]:
    number = 0
    for count in range(_MAX_VARINT_BYTES):
        if position + count >= len(message):
            break
        byte = message[position + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte <= _MAX_BYTE:
            return number % _UINT64, position + count + 1
    raise RecordError("an integer is cut off or too long", file=file, offset=offset + position)


class FieldReader:
    """Reads values of fields; errors name file and offset."""

    def __init__(self, file: str) -> None:
        self.file = file

    def integer(self, value: int | memoryview, wire_type: int, at: int) -> int:
        """Return an integer field's value."""
        if isinstance(value, int):
            return value
        raise self._wrong(wire_type, VARINT, at)

    def chunk(
        self, value: int | memoryview, wire_type: int, at: int, wanted: int = LENGTH_DELIMITED
    ) -> memoryview:
        """Return the bytes of a field of the wire type `wanted`."""
        if isinstance(value, memoryview) and wire_type == wanted:
            return value
        raise self._wrong(wire_type, wanted, at)

    def only_chunk(
        self, message: memoryview, offset: int, *, number: int, what: str
    ) -> tuple[memoryview, int]:
        """Return the bytes and the offset of the one field `number` of a message."""
        found = [
            (self.chunk(value, wire_type, at), at)
            for field, wire_type, value, at in fields(message, file=self.file, offset=offset)
            if field == number
        ]
        if len(found) != 1:
            raise RecordError(
                f"one {what} expected, {len(found)} found", file=self.file, offset=offset
            )
        return found[0]

    def text(self, data: memoryview, at: int) -> str:
        """Return UTF-8 text."""
        try:
            return bytes(data).decode()
        except UnicodeDecodeError:
            raise RecordError("a name is not UTF-8 text", file=self.file, offset=at) from None

    def number(self, text: str, at: int) -> int:
        """Parse the integer in a text."""
        if (
            text.removeprefix("-").isascii()
            and text.removeprefix("-").isdigit()
            and len(text) <= _MAX_STEP_DIGITS
        ):
            return int(text)
        raise RecordError(f"{text[:40]!r} is not a step", file=self.file, offset=at)

    def _wrong(self, found: int, wanted: int, at: int) -> RecordError:
        return RecordError(
            f"{_WIRE_TYPE_NAMES[wanted]} expected, wire type {found} found",
            file=self.file,
            offset=at,
        )
