"""A record that is read by the layout of another one holds what it holds when it is parsed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.checksum import crc32c
from hook_layer.format.errors import RecordError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.record_layout import RecordLayout
from hook_layer.format.records import decode_record, encode_record

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16"]


def record(
    value: Any, *, step: int = 300, mode_step: int = 100, name: str = "a", at: float = 1.5
) -> bytes:
    encoded = encode_record(
        name, np.asarray(value), step=step, mode=ModeKeys.TRAIN, mode_step=mode_step, wall_time=at
    )
    return b"".join(bytes(buffer) for buffer in encoded.buffers)


def layout_of(data: bytes) -> RecordLayout:
    return RecordLayout(data, decode_record(data, file="f").value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (1,), (), (2, 1, 2)])
def test_the_next_record_is_read_by_the_layout(dtype: str, shape: tuple[int, ...]) -> None:
    values = [
        np.arange(start, start + np.prod(shape)).reshape(shape).astype(dtype) for start in (0, 5)
    ]
    first, second = record(values[0]), record(values[1], step=301, mode_step=999, at=7e9)
    found = layout_of(first).value(second, crc32c([second]))
    assert found is not None
    assert (found.dtype, found.shape) == (values[1].dtype, shape)
    np.testing.assert_array_equal(found, values[1])
    assert not found.flags.writeable


def test_what_differs_in_more_than_step_and_elements_is_parsed() -> None:
    layout = layout_of(record([1.0, 2.0]))
    others = {
        "length": record([1.0, 2.0, 3.0]),
        "dtype": record(np.array([1, 2])),
        "name": record([1.0, 2.0], name="b"),
        "shape": record([[1.0, 2.0]]),
        "digits": record([1.0, 2.0], mode_step=99),
        "step": record([1.0, 2.0], step=5),
    }
    for what, other in others.items():
        assert layout.value(other, None) is None, what
    assert layout.value(record([3.0, 4.0]), 5) is None  # the checksum is another


@pytest.mark.parametrize(
    "value", [np.array(["a", "b"]), np.zeros((0, 3)), np.zeros(0, "f4")], ids=str
)
def test_there_is_no_layout_of_strings_and_of_nothing(value: np.ndarray[Any, Any]) -> None:
    data = record(value)
    assert layout_of(data).value(data, None) is None


def test_there_is_no_layout_of_the_first_step() -> None:
    data = record([1.0], step=0)  # which stands nowhere in the record
    assert layout_of(data).value(data, None) is None


@settings(max_examples=500, deadline=None)
@given(
    value=st.lists(st.integers(0, 255), min_size=1, max_size=12),
    step=st.integers(1, 2**40),
    data=st.data(),
)
def test_damaged_records_say_the_same_either_way(
    value: list[int], step: int, data: st.DataObject
) -> None:
    content = record(np.array(value, "u1"), step=step)
    layout = layout_of(content)
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        changed[at] = data.draw(st.integers(0, 255) | st.sampled_from(b"0123456789\n\x12J\x80"))
    checksum = data.draw(st.sampled_from([None, crc32c([bytes(changed)]), crc32c([content])]))
    found = layout.value(bytes(changed), checksum)
    try:
        parsed = decode_record(bytes(changed), file="f", crc32c=checksum)
    except RecordError:
        assert found is None
        return
    if found is not None:
        assert parsed.name == "a"
        np.testing.assert_array_equal(found, parsed.value)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=6), st.integers(1, 30), st.data())
def test_a_layout_of_a_strange_record_is_safe(
    extra: bytes, field: int, data: st.DataObject
) -> None:
    """Fields that nobody knows stand in the record too, as protocol buffers allow."""
    from hook_layer.format.checksum import PAYLOAD_CHECKSUM, frame_header
    from hook_layer.format.wire import LENGTH_DELIMITED, key, varint

    plain = record(np.arange(4, dtype="u1"))
    unknown = key(field, LENGTH_DELIMITED) + varint(len(extra)) + extra
    at = data.draw(st.sampled_from([12, len(plain) - 4, len(plain) - 33]))
    payload = plain[12:at] + unknown + plain[at:-4]
    strange = frame_header(len(payload)) + payload + PAYLOAD_CHECKSUM
    try:
        layout = layout_of(strange)
    except RecordError:
        return
    changed = bytearray(strange)
    changed[data.draw(st.integers(12, len(strange) - 5))] = data.draw(
        st.sampled_from(b"0189\x02\n")
    )
    found = layout.value(bytes(changed), None)
    if found is not None:
        np.testing.assert_array_equal(found, decode_record(bytes(changed), file="f").value)
