"""What is encoded by hand is what TensorBoard's own messages say."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.checksum import masked_crc32c
from hook_layer.format.summary import (
    HistogramSummary,
    clean_tag,
    encode_file_head,
    encode_histogram,
    encode_scalar,
    summary_file_key,
)

event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")

STEPS = st.integers(0, 2**63 - 1)
TIMES = st.floats(0, 4e9)
TAGS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
Five = tuple[float, float, float, float, float]
NUMBERS = st.floats(allow_nan=False)


def payloads(data: bytes) -> list[bytes]:
    """Return the framed messages; every checksum must be right."""
    found = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        payload, rest = data[12 : 12 + length], data[12 + length :]
        assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
        assert struct.unpack("<I", rest[:4])[0] == masked_crc32c(payload)
        found.append(payload)
        data = rest[4:]
    return found


def only_event(data: bytes) -> Any:
    (payload,) = payloads(data)
    event = event_pb2.Event.FromString(payload)
    assert event.SerializeToString() == payload  # nothing unknown in it, nothing twice
    return event


@given(TAGS, st.floats(width=32), STEPS, TIMES)
def test_a_scalar(tag: str, value: float, step: int, wall_time: float) -> None:
    event = only_event(encode_scalar(tag, value, step, wall_time or 1.0))
    assert (event.step, event.wall_time) == (step, wall_time or 1.0)
    assert event.summary.value[0].tag == tag
    assert event.summary.value[0].simple_value == pytest.approx(value, nan_ok=True, rel=0, abs=0)


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_scalar_beyond_float32_is_infinite(value: float) -> None:
    event = only_event(encode_scalar("a", value, 1, 2.0))
    assert event.summary.value[0].simple_value == math.copysign(math.inf, value)


@given(TAGS, st.tuples(*[NUMBERS] * 5), st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_a_histogram(tag: str, numbers: Five, buckets: list[tuple[float, float]]) -> None:
    limits, counts = [limit for limit, _ in buckets], [count for _, count in buckets]
    histogram = HistogramSummary(*numbers, limits, counts)
    (payload,) = payloads(encode_histogram(tag, histogram, 3, 1.5))
    event = event_pb2.Event.FromString(payload)
    (value,) = event.summary.value
    histo = value.histo
    assert (event.step, event.wall_time, value.tag) == (3, 1.5, tag)
    assert (histo.min, histo.max, histo.num, histo.sum, histo.sum_squares) == numbers
    assert (list(histo.bucket_limit), list(histo.bucket)) == (limits, counts)


def test_a_file_begins_with_its_version() -> None:
    event = only_event(encode_file_head(7, 1.5))
    assert (event.file_version, event.step, event.wall_time) == ("brain.Event:2", 0, 1.5)


def test_a_restart_says_from_which_step_on() -> None:
    version, start = map(
        event_pb2.Event.FromString, payloads(encode_file_head(7, 1.5, is_restart=True))
    )
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (7, event_pb2.SessionLog.START)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("gradient/Net_conv1.weight", "gradient/Net_conv1.weight"),
        ("dense/kernel:0", "dense/kernel_0"),
        ("/job:worker/a b", "job_worker/a_b"),
        ("größe", "größe"),
    ],
)
def test_tags_are_cleaned_as_by_the_original(name: str, tag: str) -> None:
    assert clean_tag(name) == tag


def test_names_of_files() -> None:
    assert summary_file_key("TRAIN", 12, "4711_node-3") == "TRAIN/000000000012_4711_node-3.tfevents"
