"""The original reads what two workers wrote, and finds the values that torch had in each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.interop.comparison import assert_same
from tests.interop.dump_trial import shown
from tests.interop.environment import OUR_PYTHON, run_scripts

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)

pytestmark = pytest.mark.other_environment
Seen = Callable[[Path], dict[str, Any]]
SAVED = {0: "TRAIN", 2: "EVAL", 3: "TRAIN"}  # the script saves every second step of a mode
PARAMETERS = ("first.weight", "first.bias", "second.weight", "second.bias")
REDUCTIONS = ("l1", "l2", "max", "min", "sum")
WORKERS = ("worker_0", "worker_1")


@pytest.fixture(scope="module", params=["DistributedDataParallel", "fully_shard"])
def wrapper(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, wrapper: str) -> Path:
    folder = tmp_path_factory.mktemp("workers")
    script = "workers_script.py"
    run_scripts(*((OUR_PYTHON, script, str(rank), folder, wrapper) for rank in range(2)))
    return folder


@pytest.fixture(scope="module")
def found(folder: Path, seen_by_smdebug: Seen) -> dict[str, Any]:
    return seen_by_smdebug(folder / "trial")


@pytest.fixture(scope="module")
def source(folder: Path) -> dict[tuple[str, int, str], np.ndarray]:
    """Values by worker, step and name."""
    values = {}
    for rank, worker in enumerate(WORKERS):
        with np.load(folder / f"source-{rank}.npz") as content:
            for key in content.files:
                step, _, name = key.partition("|")
                values[worker, int(step), name] = content[key]
    return values


def test_both_readers_say_the_same(folder: Path, found: dict[str, Any], seen_by_us: Seen) -> None:
    ours = seen_by_us(folder / "trial")
    assert_same(ours, copy.deepcopy(found), what="PyTorch on two ranks, by Stepwatch")


def test_names_steps_modes_and_workers(found: dict[str, Any]) -> None:
    weights = [f"Net_{name}" for name in PARAMETERS]
    gradients = [f"gradient/{name}" for name in weights]
    losses = ["CrossEntropyLoss_output_0"]
    assert found["names"] == sorted([*weights, *gradients, *losses, "first_output_0"])
    assert found["all_steps"] == list(SAVED)
    assert {int(step): mode for step, (mode, _) in found["mode_steps"].items()} == SAVED
    assert found["steps"] == {"TRAIN": [0, 2], "EVAL": [0]}
    assert found["workers"] == list(WORKERS)
    assert found["loaded_all_steps"]
    for name, tensor in found["tensors"].items():
        is_gradient = name.startswith("gradient/")
        steps = [step for step in SAVED if not is_gradient or SAVED[step] == "TRAIN"]
        assert tensor["workers"] == {str(step): list(WORKERS) for step in steps}


def test_every_value_is_the_one_that_torch_had(
    found: dict[str, Any], source: dict[tuple[str, int, str], np.ndarray]
) -> None:
    num_compared = 0
    for name, tensor in found["tensors"].items():
        if name == "first_output_0":
            continue
        for step, of_workers in tensor["values"].items():
            for worker, value in of_workers.items():
                assert value == shown(source[worker, int(step), name]), (name, step, worker)
                num_compared += 1
    # Weights and losses in three steps, gradients in two, of two workers each.
    assert num_compared == 2 * (3 * (len(PARAMETERS) + 1) + 2 * len(PARAMETERS))


def test_the_workers_differ_where_they_should(found: dict[str, Any], wrapper: str) -> None:
    def differs(name: str) -> bool:
        of_workers = found["tensors"][name]["values"]["0"]
        return bool(of_workers["worker_0"] != of_workers["worker_1"])

    assert differs("CrossEntropyLoss_output_0")
    has_shards = wrapper == "fully_shard"
    assert differs("Net_first.weight") is has_shards
    assert differs("gradient/Net_first.weight") is has_shards  # or the mean over both


def test_reductions_are_those_of_torch(
    found: dict[str, Any], source: dict[tuple[str, int, str], np.ndarray]
) -> None:
    for step, of_workers in found["tensors"]["first_output_0"]["reductions"].items():
        for worker, reductions in of_workers.items():
            assert tuple(reductions) == REDUCTIONS
            for reduction, (dtype, _, data) in reductions.items():
                value = np.frombuffer(bytes.fromhex(data), dtype)[0]
                expected = source[worker, int(step), f"first_output_0 {reduction}"]
                assert value == pytest.approx(float(expected), rel=1e-5), (reduction, step)
