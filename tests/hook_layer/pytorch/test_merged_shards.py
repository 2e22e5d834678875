"""Statistics of a divided model, merged when read, are those of the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)
pytest.importorskip("torch.distributed.tensor")

from rule_runtime.trial.opening import create_trial
from tests.hook_layer.pytorch.ranks import run_ranks
from tests.hook_layer.pytorch.sharded_training import EARLY, NUM_STEPS, WAYS, train, worker

COLUMNS = ["size", "nan", "inf", "min", "max", "mean", "std", "abs_mean", "l1", "l2"]
DIVIDED = [way for way in WAYS if way != "whole"]
DIVIDED += [f"{way}, registered before" for way in EARLY]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sharded")
    train(path / "whole", "whole")
    run_ranks(worker, path)
    return path


def table(folder: Path, way: str) -> Any:
    rows = create_trial(str(folder / way)).to_dataframe(statistics=COLUMNS)
    first = rows.sort_values("worker").drop_duplicates(["tensor", "step"])
    return first.set_index(["tensor", "step"]).sort_index()


@pytest.mark.parametrize("way", DIVIDED)
def test_merged_statistics_are_those_of_the_whole_model(folder: Path, way: str) -> None:
    whole, merged = table(folder, "whole"), table(folder, way)
    assert list(merged.index) == list(whole.index)
    first, second = merged[COLUMNS].to_numpy(), whole[COLUMNS].to_numpy()
    scale = np.maximum(np.abs(first), np.abs(second))
    # The mean of some gradients is 0 but for rounding.
    scale[:, COLUMNS.index("mean")] = scale[:, COLUMNS.index("abs_mean")]
    relative = np.abs(first - second) / np.where(scale > 0, scale, 1.0)
    print(f"{way:45}{np.nanmax(relative):9.1e}")
    assert np.nanmax(relative) < 1e-6, merged[relative.max(axis=1) > 1e-6]


@pytest.mark.parametrize("way", DIVIDED)
def test_each_rank_writes_and_values_are_those_of_the_first(folder: Path, way: str) -> None:
    trial = create_trial(str(folder / way))
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps
    assert trial.steps() == list(range(NUM_STEPS))
    assert not list((folder / way / "events").rglob("*worker_1*"))
    assert list((folder / way / "events").rglob("*worker_0*"))
