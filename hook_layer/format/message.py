"""Parses the event message of a tensor record: TensorFlow's Event, Summary and TensorProto."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from hook_layer.format import event_fields as number
from hook_layer.format.dtypes import STRING_TAGS, array_from_content
from hook_layer.format.errors import RecordError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.wire import FIXED64, FieldReader, fields

__all__ = ["TensorRecord", "parse_event"]

_MAX_RANK: Final = 32  # limit of numpy before 2.0
_MAX_CACHED_BYTES: Final = 256
_MAX_PADDING: Final = 16  # times the strings' own size
_INT64_SIGN: Final = 1 << 63

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, eq=False)
class TensorRecord:
    """One tensor at one step.

    The value is a read-only view of the file's bytes if numpy has its type. The time is the time of
    capture, in seconds since 1970.
    """

    name: str
    step: int
    mode: ModeKeys
    mode_step: int
    value: npt.NDArray[Any]
    wall_time: float


def parse_event(message: memoryview, *, file: str, offset: int) -> TensorRecord:
    """Parse the message of one tensor.

    Raises:
        RecordError: The message is damaged or contains no tensor.
    """
    reader = FieldReader(file)
    step, wall_time, summary = 0, 0.0, None
    for field, wire_type, value, at in fields(message, file=file, offset=offset):
        if field == number.WALL_TIME:
            (wall_time,) = struct.unpack("<d", reader.chunk(value, wire_type, at, FIXED64))
        elif field == number.STEP:
            step = _signed(reader.integer(value, wire_type, at))
        elif field == number.SUMMARY:
            summary = (reader.chunk(value, wire_type, at), at)
    if summary is None:
        raise RecordError("the event holds no tensor", file=file, offset=offset)
    entry = reader.only_chunk(*summary, number=number.VALUE, what="summary value")
    return _parse_value(reader, *entry, step=step, wall_time=wall_time)


def _parse_value(
    reader: FieldReader, message: memoryview, offset: int, *, step: int, wall_time: float
) -> TensorRecord:
    name, tensor, plugins = "", None, {}
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field == number.TAG:
            name = reader.text(reader.chunk(value, wire_type, at), at)
        elif field == number.TENSOR:
            tensor = (reader.chunk(value, wire_type, at), at)
        elif field == number.METADATA:
            plugins = _parse_plugins(reader, reader.chunk(value, wire_type, at), at)
    if tensor is None:
        raise RecordError(f"{name!r} is not a tensor record", file=reader.file, offset=offset)
    mode_step = reader.number(plugins.get(number.MODE_STEP_PLUGIN, str(step)), offset)
    mode = reader.number(plugins.get(number.MODE_PLUGIN, str(ModeKeys.GLOBAL.value)), offset)
    if mode not in ModeKeys._value2member_map_:
        raise RecordError(f"{mode} is not a mode", file=reader.file, offset=offset)
    array = _parse_tensor(reader, *tensor)
    return TensorRecord(name, step, ModeKeys(mode), mode_step, array, wall_time)


def _parse_tensor(reader: FieldReader, message: memoryview, offset: int) -> npt.NDArray[Any]:
    tag, content = 0, memoryview(b"")
    shape: tuple[int, ...] = ()
    strings: list[memoryview] = []
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field == number.DTYPE:
            tag = reader.integer(value, wire_type, at)
        elif field == number.SHAPE:
            shape = _cached(_shape_of, _parse_shape, reader, reader.chunk(value, wire_type, at), at)
        elif field == number.CONTENT:
            content = reader.chunk(value, wire_type, at)
        elif field == number.STRING:
            strings.append(reader.chunk(value, wire_type, at))
    if tag in STRING_TAGS:
        return _string_array(reader, strings, shape, offset)
    array = array_from_content(tag, content, shape)
    if array is None:
        raise RecordError(
            f"{len(content)} bytes do not fit a tensor of type {tag} and shape {list(shape)}",
            file=reader.file,
            offset=offset,
        )
    return array


def _string_array(
    reader: FieldReader, strings: list[memoryview], shape: tuple[int, ...], offset: int
) -> npt.NDArray[Any]:
    texts = [bytes(text).decode("utf-8", "surrogateescape") for text in strings]
    # numpy pads strings to the longest one, so one long string among many short ones is not padded.
    padded = len(texts) * max(map(len, texts), default=0)
    is_modest = padded <= _MAX_PADDING * (sum(map(len, texts)) + len(texts))
    array = np.array(texts, dtype=np.str_ if is_modest else np.object_)
    try:
        return array.reshape(shape)
    except ValueError:
        raise RecordError(
            f"{len(texts)} strings do not fit a tensor of shape {list(shape)}",
            file=reader.file,
            offset=offset,
        ) from None


@lru_cache(maxsize=1024)
def _shape_of(message: bytes) -> tuple[int, ...]:
    """Parse a shape; cached, because it is the same in every step."""
    return _parse_shape(FieldReader(""), memoryview(message), 0)


def _parse_shape(reader: FieldReader, message: memoryview, offset: int) -> tuple[int, ...]:
    lengths: list[int] = []
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field != number.DIMENSION:
            continue
        length = 0
        dimension = reader.chunk(value, wire_type, at)
        for part, part_type, size, size_at in fields(dimension, file=reader.file, offset=at):
            if part == number.SIZE:
                length = _signed(reader.integer(size, part_type, size_at))
        if length < 0 or len(lengths) == _MAX_RANK:
            raise RecordError("a shape is negative or too long", file=reader.file, offset=at)
        lengths.append(length)
    return tuple(lengths)


def _parse_plugins(reader: FieldReader, message: memoryview, offset: int) -> dict[str, str]:
    plugins: dict[str, str] = {}
    for field, wire_type, value, at in fields(message, file=reader.file, offset=offset):
        if field != number.PLUGIN:
            continue
        entry = reader.chunk(value, wire_type, at)
        name, content = _cached(_plugin_of, _parse_plugin, reader, entry, at)
        plugins[name] = content
    return plugins


@lru_cache(maxsize=1024)
def _plugin_of(message: bytes) -> tuple[str, str]:
    """Parse a plugin's name and content; cached, because both are the same within a step."""
    return _parse_plugin(FieldReader(""), memoryview(message), 0)


def _parse_plugin(reader: FieldReader, message: memoryview, offset: int) -> tuple[str, str]:
    texts = {number.PLUGIN_NAME: "", number.PLUGIN_CONTENT: ""}
    for part, part_type, text, text_at in fields(message, file=reader.file, offset=offset):
        if part in texts:
            texts[part] = reader.text(reader.chunk(text, part_type, text_at), text_at)
    return texts[number.PLUGIN_NAME], texts[number.PLUGIN_CONTENT]


def _cached(
    known: Callable[[bytes], _Parsed],
    parse: Callable[[FieldReader, memoryview, int], _Parsed],
    reader: FieldReader,
    message: memoryview,
    offset: int,
) -> _Parsed:
    """Parse with the cached function; parse long or invalid input again to get its position."""
    if len(message) <= _MAX_CACHED_BYTES:
        try:
            return known(bytes(message))
        except RecordError:
            pass
    return parse(reader, message, offset)


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _INT64_SIGN else value
