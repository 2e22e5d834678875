"""The event message of a tensor record: TensorFlow's Event, Summary and TensorProto.

Only the fields that the original writes are encoded, in its order; a reader must accept more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from hook_layer.format.dtypes import STRING_TAGS, array_from_content, normalized, tag_of
from hook_layer.format.errors import RecordError, UnsupportedDtypeError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.wire import (
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    FieldReader,
    fields,
    key,
    varint,
)

__all__ = ["TensorRecord", "encode_event", "parse_event"]

# Field numbers of the messages Event, Summary.Value, TensorProto and TensorShapeProto.
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_TAG, _TENSOR, _METADATA = 1, 8, 9
_DTYPE, _SHAPE, _CONTENT, _STRING = 1, 2, 4, 8
_DIMENSION, _SIZE, _DIMENSION_NAME = 2, 1, 2
_VALUE, _PLUGIN, _PLUGIN_NAME, _PLUGIN_CONTENT = 1, 1, 1, 2

_MODE_PLUGIN: Final = "mode"
_MODE_STEP_PLUGIN: Final = "mode_step"
_MAX_RANK: Final = 32  # of numpy before 2.0
_MAX_CACHED_BYTES: Final = 256
_MAX_PADDING: Final = 16  # times the strings' own size
_INT64_SIGN: Final = 1 << 63

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, eq=False)
class TensorRecord:
    """One tensor at one step.

    Attributes:
        name: Name of the tensor.
        step: Global step.
        mode: Mode of the step.
        mode_step: Step within the mode.
        value: The tensor; a read-only view of the file's bytes wherever numpy has its type.
        wall_time: Time of capture in seconds since 1970.
    """

    name: str
    step: int
    mode: ModeKeys
    mode_step: int
    value: npt.NDArray[Any]
    wall_time: float


def encode_event(event: TensorRecord) -> tuple[bytes, memoryview, bytes]:
    """Return the message as bytes before the tensor's content, the content, and bytes after it.

    Raises:
        UnsupportedDtypeError: The format has no tag for the array's type.
    """
    if event.value.dtype.kind in "USO":
        strings = b"".join(_chunk(_STRING, _string_bytes(text)) for text in event.value.flat)
        content = memoryview(b"")
        head = _value_head(event.name, event.value.shape, 0, len(strings)) + strings
    else:
        array = normalized(event.value)
        content = array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
        head = _value_head(event.name, array.shape, tag_of(array.dtype), array.nbytes)
    tail = _metadata(event.mode, event.mode_step)
    value_bytes = len(head) + content.nbytes + len(tail)
    value_key = key(_VALUE, LENGTH_DELIMITED) + varint(value_bytes)
    parts = [
        key(_WALL_TIME, FIXED64) + struct.pack("<d", event.wall_time) if event.wall_time else b"",
        key(_STEP, VARINT) + varint(event.step) if event.step else b"",
        key(_SUMMARY, LENGTH_DELIMITED) + varint(len(value_key) + value_bytes),
        value_key,
        head,
    ]
    return b"".join(parts), content, tail


@lru_cache(maxsize=8192)
def _value_head(name: str, shape: tuple[int, ...], tag: int, content_bytes: int) -> bytes:
    """Return the bytes of a summary value before its content; the same at every step."""
    tensor = key(_DTYPE, VARINT) + varint(tag) if tag else b""
    tensor += _chunk(_SHAPE, b"".join(_dimension(name, length) for length in shape))
    if tag and content_bytes:
        tensor += key(_CONTENT, LENGTH_DELIMITED) + varint(content_bytes)
    tensor_key = key(_TENSOR, LENGTH_DELIMITED) + varint(len(tensor) + content_bytes)
    return _chunk(_TAG, name.encode()) + tensor_key + tensor


@lru_cache(maxsize=64)
def _metadata(mode: ModeKeys, mode_step: int) -> bytes:
    """Return the metadata of a summary value; the same for all tensors of a step."""
    return _chunk(
        _METADATA, _plugin(_MODE_STEP_PLUGIN, mode_step) + _plugin(_MODE_PLUGIN, mode.value)
    )


def parse_event(message: memoryview, *, file: str, offset: int) -> TensorRecord:
    """Parse the message of one tensor.

    Raises:
        RecordError: The message is damaged or holds no tensor.
    """
    reader = FieldReader(file)
    step, wall_time, summary = 0, 0.0, None
    for field, wire_type, value, at in fields(message, file=file, offset=offset):
        if field == _WALL_TIME:
            (wall_time,) = struct.unpack("<d", reader.chunk(value, wire_type, at, FIXED64))
        elif field == _STEP:
            step = _signed(reader.integer(value, wire_type, at))
        elif field == _SUMMARY:
            summary = (reader.chunk(value, wire_type, at), at)
    if summary is None:
        raise RecordError("the event holds no tensor", file=file, offset=offset)
    entry = reader.only_chunk(*summary, number=_VALUE, what="summary value")
    return _parse_value(reader, *entry, step=step, wall_time=wall_time)


def _parse_value(
    reader: FieldReader, message: memoryview, offset: int, *, step: int, wall_time: float
) -> TensorRecord:
    name, tensor, plugins = "", None, {}
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field == _TAG:
            name = reader.text(reader.chunk(value, wire_type, at), at)
        elif field == _TENSOR:
            tensor = (reader.chunk(value, wire_type, at), at)
        elif field == _METADATA:
            plugins = _parse_plugins(reader, reader.chunk(value, wire_type, at), at)
    if tensor is None:
        raise RecordError(f"{name!r} is no tensor record", file=reader.file, offset=offset)
    mode_step = reader.number(plugins.get(_MODE_STEP_PLUGIN, str(step)), offset)
    mode = reader.number(plugins.get(_MODE_PLUGIN, str(ModeKeys.GLOBAL.value)), offset)
    if mode not in ModeKeys._value2member_map_:
        raise RecordError(f"{mode} is no mode", file=reader.file, offset=offset)
    array = _parse_tensor(reader, *tensor)
    return TensorRecord(name, step, ModeKeys(mode), mode_step, array, wall_time)


def _parse_tensor(reader: FieldReader, message: memoryview, offset: int) -> npt.NDArray[Any]:
    tag, content = 0, memoryview(b"")
    shape: tuple[int, ...] = ()
    strings: list[memoryview] = []
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field == _DTYPE:
            tag = reader.integer(value, wire_type, at)
        elif field == _SHAPE:
            shape = _cached(_shape_of, _parse_shape, reader, reader.chunk(value, wire_type, at), at)
        elif field == _CONTENT:
            content = reader.chunk(value, wire_type, at)
        elif field == _STRING:
            strings.append(reader.chunk(value, wire_type, at))
    if tag in STRING_TAGS:
        return _string_array(reader, strings, shape, offset)
    array = array_from_content(tag, content, shape)
    if array is None:
        raise RecordError(
            f"{len(content)} bytes are no tensor of type {tag} and shape {list(shape)}",
            file=reader.file,
            offset=offset,
        )
    return array


def _string_array(
    reader: FieldReader, strings: list[memoryview], shape: tuple[int, ...], offset: int
) -> npt.NDArray[Any]:
    texts = [bytes(text).decode("utf-8", "surrogateescape") for text in strings]
    # numpy pads every string to the longest: one long string among many short ones stays unpadded.
    padded = len(texts) * max(map(len, texts), default=0)
    is_modest = padded <= _MAX_PADDING * (sum(map(len, texts)) + len(texts))
    array = np.array(texts, dtype=np.str_ if is_modest else np.object_)
    try:
        return array.reshape(shape)
    except ValueError:
        raise RecordError(
            f"{len(texts)} strings are no tensor of shape {list(shape)}",
            file=reader.file,
            offset=offset,
        ) from None


@lru_cache(maxsize=1024)
def _shape_of(message: bytes) -> tuple[int, ...]:
    """Parse a shape as it stands, the same, in the records of every step."""
    return _parse_shape(FieldReader(""), memoryview(message), 0)


def _parse_shape(reader: FieldReader, message: memoryview, offset: int) -> tuple[int, ...]:
    lengths: list[int] = []
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field != _DIMENSION:
            continue
        length = 0
        dimension = reader.chunk(value, wire_type, at)
        for part, part_type, size, size_at in fields(dimension, file=reader.file, offset=at):
            if part == _SIZE:
                length = _signed(reader.integer(size, part_type, size_at))
        if length < 0 or len(lengths) == _MAX_RANK:
            raise RecordError("a shape is negative or too long", file=reader.file, offset=at)
        lengths.append(length)
    return tuple(lengths)


def _parse_plugins(reader: FieldReader, message: memoryview, offset: int) -> dict[str, str]:
    plugins: dict[str, str] = {}
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field != _PLUGIN:
            continue
        entry = reader.chunk(value, wire_type, at)
        name, content = _cached(_plugin_of, _parse_plugin, reader, entry, at)
        plugins[name] = content
    return plugins


@lru_cache(maxsize=1024)
def _plugin_of(message: bytes) -> tuple[str, str]:
    """Parse a plugin's name and content, the same in all records of a step."""
    return _parse_plugin(FieldReader(""), memoryview(message), 0)


def _parse_plugin(reader: FieldReader, message: memoryview, offset: int) -> tuple[str, str]:
    texts = {_PLUGIN_NAME: "", _PLUGIN_CONTENT: ""}
    for part, part_type, text, text_at in fields(message, file=reader.file, offset=offset):
        if part in texts:
            texts[part] = reader.text(reader.chunk(text, part_type, text_at), text_at)
    return texts[_PLUGIN_NAME], texts[_PLUGIN_CONTENT]


def _cached(
    known: Callable[[bytes], _Parsed],
    parse: Callable[[FieldReader, memoryview, int], _Parsed],
    reader: FieldReader,
    message: memoryview,
    offset: int,
) -> _Parsed:
    """Parse by the cached function; by the other what is long, or wrong: it says in which place."""
    if len(message) <= _MAX_CACHED_BYTES:
        try:
            return known(bytes(message))
        except RecordError:
            pass
    return parse(reader, message, offset)


def _dimension(name: str, length: int) -> bytes:
    size = key(_SIZE, VARINT) + varint(length) if length else b""
    return _chunk(_DIMENSION, size + _chunk(_DIMENSION_NAME, f"{name}_{length}".encode()))


def _string_bytes(text: object) -> bytes:
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    raise UnsupportedDtypeError(
        f"an object array may hold strings only, this one holds a {type(text).__name__}"
    )


def _plugin(name: str, content: int) -> bytes:
    entry = _chunk(_PLUGIN_NAME, name.encode()) + _chunk(_PLUGIN_CONTENT, str(content).encode())
    return _chunk(_PLUGIN, entry)


def _chunk(field: int, data: bytes) -> bytes:
    return key(field, LENGTH_DELIMITED) + varint(len(data)) + data


def _signed(number: int) -> int:
    return number - (1 << 64) if number & _INT64_SIGN else number
