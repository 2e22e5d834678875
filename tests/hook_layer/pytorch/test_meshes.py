"""Which ranks write of many that divide a model; on meshes of ranks that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
pytest.importorskip("torch.distributed.tensor")

from torch import nn  # noqa: E402

from hook_layer.pytorch.sharded_parameters import first_of_shard_groups  # noqa: E402


@pytest.fixture
def many_ranks() -> Iterator[None]:
    store = fake_pg.FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=64)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("many_ranks")
@pytest.mark.parametrize(
    ("shape", "names", "divides", "first"),
    [
        ((64,), ("dp",), "dp", {0}),
        ((4, 16), ("pp", "dp"), "dp", {0, 16, 32, 48}),
        ((8, 8), ("replicate", "shard"), "shard", {0, 8, 16, 24, 32, 40, 48, 56}),
    ],
)
def test_each_stage_and_each_group_that_divides_a_model_has_a_first_rank(
    shape: tuple[int, ...], names: tuple[str, ...], divides: str, first: set[int]
) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh: Any = init_device_mesh("cpu", shape, mesh_dim_names=names)
    tensor = distribute_tensor(torch.ones(64, 2), mesh[divides], [Shard(0)])
    assert first_of_shard_groups([tensor, torch.ones(2)]) == first


def test_a_plain_model_has_none() -> None:
    assert first_of_shard_groups(nn.Linear(2, 2).parameters()) == set()
