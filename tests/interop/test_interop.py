"""The original client reads what we write, and we read what it writes, to the bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.index import IndexFile, TensorLocation, parse_index
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, collections_key, event_key, index_key
from hook_layer.format.records import encode_record
from hook_layer.storage.local import LocalStore
from tests.interop.comparison import assert_same
from tests.interop.dump_trial import shown
from tests.interop.environment import OUR_PYTHON, SMDEBUG_PYTHON, run_scripts

pytestmark = pytest.mark.other_environment
Seen = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The trials that the script writes with the original's hook, and with ours."""
    theirs, ours = (tmp_path_factory.mktemp(name) / "trial" for name in ("original", "ours"))
    run_scripts(
        (SMDEBUG_PYTHON, "train_script.py", "smdebug.pytorch", theirs),
        (OUR_PYTHON, "train_script.py", "hook_layer.pytorch", ours),
    )
    return theirs, ours


@pytest.fixture(scope="module")
def of_smdebug(trials: tuple[Path, Path]) -> Path:
    return trials[0]


@pytest.fixture(scope="module")
def of_ours(trials: tuple[Path, Path]) -> Path:
    return trials[1]


@pytest.fixture(scope="module")
def expected(of_smdebug: Path, seen_by_smdebug: Seen) -> dict[str, Any]:
    """What the original's reader says of the original's files."""
    content = seen_by_smdebug(of_smdebug)
    assert len(content["names"]) == 11
    assert content["steps"] == {"TRAIN": [0, 2, 4], "EVAL": [0]}
    return content


def test_our_reader_says_the_same_of_the_originals_files(
    of_smdebug: Path, expected: dict[str, Any], seen_by_us: Seen
) -> None:
    ours = seen_by_us(of_smdebug)
    assert_same(ours, copy.deepcopy(expected), what="PyTorch, by the original")


def test_both_readers_say_the_same_of_our_files(
    of_ours: Path, seen_by_smdebug: Seen, seen_by_us: Seen
) -> None:
    assert_same(seen_by_us(of_ours), seen_by_smdebug(of_ours), what="PyTorch, by Stepwatch")


def test_the_original_finds_in_our_files_what_its_own_hook_saves(
    of_ours: Path, expected: dict[str, Any], seen_by_smdebug: Seen
) -> None:
    found = seen_by_smdebug(of_ours)
    for part in ("names", "modes", "steps", "all_steps", "mode_steps", "workers", "collections"):
        assert found[part] == expected[part], part
    for name, tensor in expected["tensors"].items():
        for part in ("modes", "values", "reductions", "workers"):
            assert found["tensors"][name][part] == tensor[part], (name, part)
        # Where a value is reduced only, ours notes the shape too, and the original does not.
        for step, shapes in tensor["shapes"].items():
            if shapes != ["raised ShapeUnavailableForStep"]:
                assert found["tensors"][name]["shapes"][step] == shapes, (name, step)


SMDEBUG_DTYPES = ["f2", "f4", "f8", "i4", "i8", "?", "u1", "c16"]
OUR_DTYPES = [*SMDEBUG_DTYPES, "i1", "i2", "u2", "u4", "u8", "c8"]


def sample(dtype: str) -> np.ndarray:
    return (np.arange(-6, 6) * 37).astype(dtype).reshape(3, 4)


def write_step(
    path: Path, tensors: dict[str, np.ndarray], *, worker: str = "worker_0", step: int = 0
) -> None:
    """Write one step with the format's own functions, without a hook."""
    buffers: list[bytes | memoryview] = []
    locations, start = [], 0
    for name, value in tensors.items():
        record = encode_record(
            name, value, step=step, mode=ModeKeys.TRAIN, mode_step=step, wall_time=1.5
        )
        locations.append(TensorLocation(name, start, record.length))
        buffers += record.buffers
        start += record.length
    store = LocalStore(path)
    store.put(event_key(step, worker), buffers)
    index = IndexFile(ModeKeys.TRAIN, step, event_key(step, worker), tuple(locations))
    store.put(index_key(step, worker), index.encode())


def finish(path: Path, *, workers: int = 1) -> None:
    store = LocalStore(path)
    entries = {name: CollectionEntry(name) for name in ("default", "all")}
    for worker in range(workers):
        key = collections_key(f"worker_{worker}")
        store.put(key, CollectionsFile(entries, workers).encode())
    store.put(END_MARKER, b"01JDXX")


def test_every_type_that_the_original_reads_is_bit_equal(
    tmp_path: Path, seen_by_smdebug: Seen, seen_by_us: Seen
) -> None:
    tensors = {f"t_{dtype}": sample(dtype) for dtype in SMDEBUG_DTYPES}
    tensors |= {"scalar": np.array(2.5, "f4"), "strings": np.array(["a", "bé"])}
    write_step(tmp_path, tensors)
    finish(tmp_path)
    found = seen_by_smdebug(tmp_path)
    assert_same(seen_by_us(tmp_path), found)
    for name, value in tensors.items():
        assert found["tensors"][name]["values"]["0"]["worker_0"] == shown(value)


def test_types_that_the_originals_reader_loses_are_kept_by_ours(
    tmp_path: Path, seen_by_us: Seen
) -> None:
    write_step(tmp_path, {f"t_{dtype}": sample(dtype) for dtype in OUR_DTYPES})
    finish(tmp_path)
    found = seen_by_us(tmp_path)
    for dtype in OUR_DTYPES:
        seen = found["tensors"][f"t_{dtype}"]["values"]["0"]["worker_0"]
        assert seen == shown(sample(dtype)), dtype


def test_several_workers_are_read(tmp_path: Path, seen_by_smdebug: Seen, seen_by_us: Seen) -> None:
    for step in (0, 10):
        for rank in range(2):
            value = np.full(3, step + rank, "f4")
            write_step(tmp_path, {"loss": value}, worker=f"worker_{rank}", step=step)
    finish(tmp_path, workers=2)
    found = seen_by_smdebug(tmp_path)
    assert found["workers"] == ["worker_0", "worker_1"]
    assert_same(seen_by_us(tmp_path), found)


def test_an_index_with_statistics_only_is_read_by_the_original(
    tmp_path: Path, seen_by_smdebug: Seen, seen_by_us: Seen
) -> None:
    torch.manual_seed(0)
    net, loss = nn.Linear(3, 2), nn.CrossEntropyLoss()
    hook = smd.Hook(
        tmp_path,
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "gradients", "losses"],
        reduction_config=smd.ReductionConfig(save_raw_tensor=False),
    )
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        loss(net(torch.ones(5, 3)), torch.zeros(5, dtype=torch.long)).backward()
        optimizer.step()
    hook.close()
    store = LocalStore(tmp_path)
    index = parse_index(store.get(index_key(0, "worker_0")), file="index")
    assert index.statistics is not None
    row = index.statistics.tensors.index("gradient/Linear_weight")
    assert index.statistics.column("abs_mean")[row] > 0

    found = seen_by_smdebug(tmp_path)
    assert found["all_steps"] == [0, 2]
    assert "gradient/Linear_weight" in found["names"]
    gradient = found["tensors"]["gradient/Linear_weight"]
    assert gradient["values"]["0"]["worker_0"] == "raised TensorUnavailableForStep"
    assert gradient["shapes"] == {"0": ["(2, 3)"], "2": ["(2, 3)"]}
    assert found["tensors"]["Linear_weight"]["shapes"]["2"] == ["(2, 3)"]
    assert_same(seen_by_us(tmp_path), found)
