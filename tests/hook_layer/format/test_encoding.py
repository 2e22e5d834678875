"""Encoding the tensors of a step: the same bytes whichever way they are gone through."""

from __future__ import annotations

import json
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.encoding import EncodedRecord, EventBuffers, StepEncoder
from hook_layer.format.index import IndexFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.records import decode_record, read_records
from tests.hook_layer.format.index_files import index_files

STEP = {"step": 300, "mode": ModeKeys.EVAL, "mode_step": 7, "wall_time": 1.5}
LARGE = np.random.default_rng(0).standard_normal((3, 500, 700))
VIEWS = {
    "as it is": LARGE,
    "transposed": LARGE.T,
    "every second": LARGE[:, ::2],
    "complex": LARGE.view("c16"),
    "half": LARGE.astype("f2"),
    "big-endian": LARGE.astype(">f8"),
    "boolean": LARGE > 0,
    "quantised": np.zeros(100_000, dtype=[("qint8", "i1")]),
}


def encoded(value: np.ndarray, name: str = "w") -> EncodedRecord:
    return StepEncoder(**STEP).encode(name, value)


@pytest.mark.parametrize("name", VIEWS)
def test_a_large_tensor_of_any_layout_and_type_comes_back(name: str) -> None:
    record = encoded(VIEWS[name])
    data = b"".join(record.pieces())
    assert data == b"".join(record.buffers)
    assert (len(data), google_crc32c.value(data)) == (record.length, record.crc32c)
    back = decode_record(data, file="f", crc32c=record.crc32c).value
    np.testing.assert_array_equal(back, VIEWS[name])


def test_the_checksum_is_there_however_much_was_gone_through_before() -> None:
    expected = google_crc32c.value(b"".join(encoded(LARGE).buffers))
    assert encoded(LARGE).crc32c == expected
    record = encoded(LARGE)
    pieces: Any = record.pieces()
    for _ in range(3):
        next(pieces)
    pieces.close()
    assert record.crc32c == expected


@pytest.mark.parametrize("size", [0, 1, 8_191, 8_192, 8_193, 65_536, 65_537, 200_000])
def test_a_file_of_records_can_be_gone_through_again(size: int) -> None:
    encoder, events = StepEncoder(**STEP), EventBuffers()
    values = {"small": np.arange(3.0), "w": np.arange(size, dtype="f4"), "text": np.array(["a"])}
    for name, value in values.items():
        events.append(encoder.encode(name, value))
    first, second = b"".join(events), b"".join(events)
    assert first == second
    assert len(first) == events.nbytes
    found = [record for _, record in read_records(first, file="f")]
    assert [record.name for record in found] == list(values)
    for record in found:
        np.testing.assert_array_equal(record.value, values[record.name])
        assert (record.step, record.mode, record.mode_step) == (300, ModeKeys.EVAL, 7)


@given(
    step=st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 2**40]),
    mode_step=st.sampled_from([0, 9, 10, 99_999]),
    wall_time=st.sampled_from([0.0, 1.5]),
    own_time=st.sampled_from([None, 0.0, 2.5]),
    shape=st.sampled_from([(), (1,), (2, 3), (6,), (0, 3)]),
)
def test_what_is_remembered_of_a_tensor_fits_every_step(
    step: int,
    mode_step: int,
    wall_time: float,
    own_time: float | None,
    shape: tuple[int, ...],
) -> None:
    encoder = StepEncoder(step=step, mode=ModeKeys.TRAIN, mode_step=mode_step, wall_time=wall_time)
    value = np.ones(shape, "f4")
    record = encoder.encode("w", value, wall_time=own_time)
    back = decode_record(b"".join(record.buffers), file="f", crc32c=record.crc32c)
    assert (back.step, back.mode_step) == (step, mode_step)
    assert back.wall_time == (wall_time if own_time is None else own_time)
    assert back.value.shape == shape


@given(index_files())
def test_an_index_file_is_spelled_as_json_is(index: IndexFile) -> None:
    data = index.encode()
    assert json.dumps(json.loads(data)).encode() == data
    assert index.encode() == data
