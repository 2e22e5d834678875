"""Index, collections and job files: round trips, the original's JSON, hostile files."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.collections_file import (
    parse_collections,
)
from hook_layer.format.errors import (
    FormatError,
    IndexFileError,
)
from hook_layer.format.index import (
    MAX_INDEX_BYTES,
    IndexFile,
    Statistics,
    TensorLocation,
    TensorShape,
    parse_index,
)
from hook_layer.format.job_file import (
    parse_job_file,
    parse_stop_file,
)
from hook_layer.format.modes import ModeKeys
from tests.hook_layer.format.index_files import EVENT

ORIGINAL = {
    "meta": {"mode": "TRAIN", "mode_step": 0, "event_file_name": EVENT},
    "tensor_payload": [{"tensorname": "w", "start_idx": 0, "length": 111}],
    "shape_payload": [{"tensorname": "w", "originalname": "orig", "shape": [2, 3]}],
}


def parsed(content: object) -> IndexFile:
    return parse_index(json.dumps(content).encode(), file="index/x.json")


def test_the_originals_file_is_read() -> None:
    index = parsed(ORIGINAL)
    assert index.mode is ModeKeys.TRAIN
    assert index.event_file_name == EVENT
    assert index.locations == (TensorLocation("w", 0, 111),)
    assert index.shapes == (TensorShape("w", "orig", (2, 3)),)
    assert (index.statistics, index.run, index.workers, index.sequence) == (None,) * 4


def test_without_additions_the_file_has_the_originals_bytes() -> None:
    assert parsed(ORIGINAL).encode() == json.dumps(ORIGINAL).encode()


@pytest.mark.parametrize("time", [0, 1795212403.25, 253402300799])
def test_the_time_of_a_step_is_a_number_of_the_index(time: float) -> None:
    index = parsed({**ORIGINAL, "time": time})
    assert index.time == time
    assert isinstance(index.time, float)
    assert json.loads(index.encode())["time"] == time


@pytest.mark.parametrize(
    "time",
    [None, "2026-11-20", True, -1, -0.5, 253402300800, 10**400, math.nan, math.inf, [1], {"s": 1}],
)
def test_what_is_no_time_costs_no_step(time: object) -> None:
    index = parsed({**ORIGINAL, "time": time})
    assert index.time is None
    assert index.locations == parsed(ORIGINAL).locations


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, 1e300])
def test_what_is_no_time_is_not_written(time: float) -> None:
    location = TensorLocation("w", 0, 1)
    data = IndexFile(ModeKeys.TRAIN, 0, EVENT, (location,), time=time).encode()
    assert "time" not in json.loads(data)


def test_the_statistics_block_is_the_documented_one() -> None:
    block = Statistics(
        ("size", "mean"), ("g",), ("float32",), ((2,),), np.array([[2.0, 0.5]]), (7,)
    )
    content = json.loads(
        IndexFile(
            ModeKeys.TRAIN, 0, None, (), (TensorShape("g", "g", (2,)),), block, "R", 2, 41
        ).encode()
    )
    assert content["statistics"] == {
        "version": 1,
        "columns": ["size", "mean"],
        "tensors": ["g"],
        "dtypes": ["float32"],
        "shapes": [[2]],
        "crc32c": [7],
        "values": base64.b64encode(np.array([2.0, 0.5], "<f8").tobytes()).decode(),
    }
    assert (content["run"], content["workers"], content["sequence"]) == ("R", 2, 41)


def test_a_missing_column_is_nan() -> None:
    block = Statistics(("size",), ("g",), ("float32",), ((2,),), np.array([[2.0]]), (None,))
    assert block.column("size").tolist() == [2.0]
    assert np.isnan(block.column("abs_mean")).all()


def test_an_unknown_version_of_statistics_is_left_out() -> None:
    assert parsed({**ORIGINAL, "statistics": {"version": 2, "new": "layout"}}).statistics is None


def changed(path: str, value: Any) -> dict[str, Any]:
    content = json.loads(json.dumps(ORIGINAL))
    *parents, last = path.split(".")
    target = content
    for parent in parents:
        target = target[int(parent)] if isinstance(target, list) else target[parent]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return content


BLOCK = {
    "version": 1,
    "columns": ["size"],
    "tensors": ["g"],
    "dtypes": ["f"],
    "shapes": [[]],
    "crc32c": [None],
    "values": base64.b64encode(b"\0" * 8).decode(),
}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"meta": {}},
        changed("meta", None),
        changed("meta.mode", "TRAINING"),
        changed("meta.mode", 1),
        changed("meta.mode_step", -1),
        changed("meta.mode_step", True),
        changed("meta.mode_step", 1.5),
        changed("meta.event_file_name", None),
        changed("meta.event_file_name", "../../etc/passwd"),
        changed("meta.event_file_name", "events/../../x"),
        changed("meta.event_file_name", "/etc/passwd"),
        changed("meta.event_file_name", f"events/{'0' * 12}/../{EVENT}"),
        changed("meta.event_file_name", f"{EVENT[:-9]}/../x.tfevents"),
        changed("meta.event_file_name", "s3://other/events/x"),
        changed("tensor_payload", {"a": 1}),
        changed("tensor_payload", ["w"]),
        changed("tensor_payload.0.start_idx", -5),
        changed("tensor_payload.0.start_idx", "0"),
        changed("tensor_payload.0.length", 2**63),
        changed("tensor_payload.0.tensorname", None),
        changed("shape_payload.0.shape", [-1]),
        changed("shape_payload.0.shape", "ab"),
        changed("workers", 0),
        changed("workers", 2**40),
        changed("sequence", 0),
        changed("run", 7),
        changed("statistics", []),
        changed("statistics", {**BLOCK, "values": "!!"}),
        changed("statistics", {**BLOCK, "values": ""}),
        changed("statistics", {**BLOCK, "values": 5}),
        changed("statistics", {**BLOCK, "tensors": []}),
        changed("statistics", {**BLOCK, "columns": ["size", "mean"]}),
        changed("statistics", {**BLOCK, "crc32c": [2**32]}),
        changed("statistics", {**BLOCK, "shapes": [["x"]]}),
    ],
)
def test_a_file_that_contradicts_the_format_is_refused(content: object) -> None:
    with pytest.raises(IndexFileError, match=r"index/x\.json"):
        parsed(content)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"meta": {"mode": "\\ud800"}}',
        b'{"meta": {"mode": "\\uDFFF x"}}',
        b'{"meta": {"mode": "\xed\xa0\x80"}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"meta": ' + b"9" * 10_000 + b"}",
    ],
)
def test_bytes_that_are_no_json_object_are_refused(data: bytes) -> None:
    for parse in (parse_index, parse_collections, parse_job_file, parse_stop_file):
        with pytest.raises(FormatError, match="the file"):
            parse(data, file="the file")


def test_a_character_that_json_writes_as_a_pair_is_kept() -> None:
    content = {**ORIGINAL, "run": "\N{GRINNING FACE}"}
    assert b"\\ud83d" in json.dumps(content).encode()
    assert parsed(content).run == "\N{GRINNING FACE}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*ORIGINAL, *BLOCK, "statistics", "collections", "_meta"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_raises_another_error(content: Any) -> None:
    data = json.dumps(content).encode()
    for parse in (parse_index, parse_collections, parse_job_file, parse_stop_file):
        try:
            parse(data, file="f")
        except FormatError as error:
            assert error.file == "f"


def test_an_index_without_a_tensor_is_not_written() -> None:
    with pytest.raises(IndexFileError, match="at least one tensor"):
        IndexFile(ModeKeys.TRAIN, 0, None).encode()
    with pytest.raises(IndexFileError, match="event file"):
        IndexFile(ModeKeys.TRAIN, 0, None, (TensorLocation("w", 0, 1),)).encode()


def test_an_index_that_no_reader_would_take_is_neither_written_nor_read() -> None:
    location = TensorLocation("n" * MAX_INDEX_BYTES, 0, 1)
    with pytest.raises(IndexFileError, match="longer than"):
        IndexFile(ModeKeys.TRAIN, 0, EVENT, (location,)).encode()
    with pytest.raises(IndexFileError, match=f"f: longer than the {MAX_INDEX_BYTES} bytes allowed"):
        parse_index(b"{}" + b" " * MAX_INDEX_BYTES, file="f")


@pytest.mark.parametrize("wrong", [True, 0.0])
def test_what_only_compares_equal_is_refused_all_the_same(wrong: object) -> None:
    row = {"tensorname": "w", "start_idx": wrong, "length": 1}
    content = {**ORIGINAL, "tensor_payload": [row]}
    with pytest.raises(IndexFileError, match="start_idx"):
        parse_index(json.dumps(content).encode(), file="f")
