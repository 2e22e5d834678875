"""Finds this rank's part of parameters that DeepSpeed's ZeRO stage 3 divides.

Such a parameter is empty outside its layer's forward and backward pass. `ds_tensor` has this rank's
part, padded to the same size in all ranks. DeepSpeed is not imported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hook_layer.format.statistics_block import Shard

__all__ = ["zero_part"]


def zero_part(parameter: Tensor) -> tuple[Tensor, Shard | None] | None:
    """Return this rank's part of a parameter, and its position; None for a plain parameter."""
    known: Any = parameter
    part = getattr(known, "ds_tensor", None)
    if part is None:
        return None
    group = getattr(known, "ds_process_group", None)
    rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    flat, shape = part.detach().view(-1), tuple(map(int, known.ds_shape))
    own = flat[: min(max(int(known.ds_numel) - rank * flat.numel(), 0), flat.numel())]
    return (own.view(shape), None) if size == 1 else (own, Shard(shape, (rank,)))
