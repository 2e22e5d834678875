"""Parameters as DeepSpeed's ZeRO stage 3 leaves them in the ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

from torch import nn  # noqa: E402

from hook_layer.format.statistics_block import Shard  # noqa: E402
from hook_layer.pytorch.sharded_parameters import zero_part  # noqa: E402


@pytest.mark.parametrize(("rank", "expected"), [(0, [0, 1, 2, 3]), (1, [4])])
def test_a_rank_has_its_part_without_padding(rank: int, expected: list[int]) -> None:
    store = fake_pg.FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=rank, world_size=2)
    try:
        parameter: Any = nn.Parameter(torch.empty(0))
        padded = torch.tensor([*range(5), 0.0, 0.0, 0.0])
        parameter.ds_tensor = padded[4 * rank :][:4]
        parameter.ds_numel, parameter.ds_shape = 5, torch.Size([5, 1])
        part = zero_part(parameter)
    finally:
        torch.distributed.destroy_process_group()
    assert part is not None
    assert part[0].tolist() == expected
    assert part[1] == Shard((5, 1), (rank,))


def test_other_parameters_are_plain() -> None:
    assert zero_part(nn.Parameter(torch.ones(2))) is None
