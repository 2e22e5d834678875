"""An index file that is read piece by piece says what it says when it is parsed as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format import index as index_module
from hook_layer.format.errors import IndexFileError
from hook_layer.format.index import (
    IndexFile,
    Statistics,
    TensorLocation,
    parse_index,
)
from hook_layer.format.index_pieces import index_pieces
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key
from tests.hook_layer.format.index_files import index_files


def facts(index: IndexFile) -> Any:
    """Return everything in a file, so that equal files have equal facts."""
    members = {name: getattr(index, name) for name in index.__dataclass_fields__}
    block = members.pop("statistics")
    if block is not None:
        members["statistics"] = [block.columns, block.tensors, block.dtypes, block.shapes]
        members["statistics"] += [block.crc32c, block.values.tobytes(), block.values.shape]
    return repr(members)


def read(data: bytes) -> Any:
    try:
        return facts(parse_index(data, file="f"))
    except IndexFileError as error:
        return str(error)


@pytest.fixture(scope="module")
def read_whole() -> Callable[[bytes], Any]:
    def read_without_pieces(data: bytes) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index_module, "index_pieces", lambda _: None)
            return read(data)

    return read_without_pieces


@given(index_files())
def test_files_of_ours_come_back_in_pieces(index: IndexFile) -> None:
    data = index.encode()
    assert index_pieces(data) is not None or index.mode_step >= 10**18
    assert facts(parse_index(data, file="f")) == facts(index)


@settings(max_examples=400, deadline=None)
@given(index=index_files(), other=index_files(), data=st.data())
def test_damaged_files_say_the_same_either_way(
    index: IndexFile, other: IndexFile, data: st.DataObject, read_whole: Any
) -> None:
    content, second = index.encode(), other.encode()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        cut = data.draw(st.integers(0, 12))
        source = data.draw(st.sampled_from([b'", {}[]:\\null 0123456789.eE-A\xff\xc3\xa9', second]))
        start = data.draw(st.integers(0, len(source)))
        piece = source[start : start + data.draw(st.integers(0, 40))]
        content = content[:at] + piece + content[at + cut :]
    assert read(content) == read_whole(content)


MEMBERS = [
    ', "tensor_payload": []',
    ', "shape_payload": null',
    ', "run": "other"',
    ', "meta": {"mode": "EVAL", "mode_step": 7}',
    ', "statistics": null',
    ', "statistics": {"version": 2}',
    ', "sequence": 0',
    ', "workers": true',
    ', "mine": {"crc32c": [1], "values": "x"}',
    ', "\\ud800": 1',
    ', "a": "\\ud800"',
    ', "a": NaN',
    ', "time": 1.5',
    ",",
    " ",
    "}",
    "{",
]


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("run", [None, "01"])
@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_member_too_many_anywhere(
    member: str, run: str | None, has_statistics: bool, read_whole: Any
) -> None:
    statistics = Statistics(("size",), ("a",), ("float32",), ((1,),), np.ones((1, 1)), (5,))
    index = IndexFile(
        ModeKeys.TRAIN,
        3,
        event_key(3, "worker_0"),
        (TensorLocation("a", 0, 9),),
        statistics=statistics if has_statistics else None,
        run=run,
        workers=1 if run else None,
        sequence=4 if run else None,
    )
    content = index.encode()
    assert "locations" in read(content)
    places = [at for at, byte in enumerate(content) if byte in b",}]"]
    for at in places:
        changed = content[:at] + member.encode() + content[at:]
        assert read(changed) == read_whole(changed), changed


def test_another_order_of_members_is_read_too(read_whole: Any) -> None:
    content = {
        "tensor_payload": [{"tensorname": "w", "start_idx": 0, "length": 111}],
        "meta": {"mode_step": 0, "mode": "TRAIN", "event_file_name": event_key(0, "w")},
    }
    data = json.dumps(content).encode()
    assert index_pieces(data) is None
    assert "'w'" in read(data)
    assert read(data) == read_whole(data)


def test_what_is_equal_in_many_files_is_kept_once() -> None:
    names = tuple(f"layer{at}" for at in range(50))
    locations = tuple(TensorLocation(name, 10 * at, 10) for at, name in enumerate(names))
    files = []
    for step in range(3):
        block = Statistics(
            ("size",), names, ("f",) * 50, ((1,),) * 50, np.full((50, 1), step), (step,) * 50
        )
        index = IndexFile(
            ModeKeys.TRAIN, step, event_key(step, "w"), locations, statistics=block, run="01"
        )
        files.append(parse_index(index.encode(), file="f"))
    for file in files[1:]:
        assert file.locations is files[0].locations
        assert file.statistics is not None
        assert files[0].statistics is not None
        assert file.statistics.tensors is files[0].statistics.tensors
        assert file.statistics.shapes is files[0].statistics.shapes
    assert [file.statistics.values[7, 0] for file in files if file.statistics] == [0, 1, 2]
