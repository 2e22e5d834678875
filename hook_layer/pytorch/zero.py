"""Parameters that DeepSpeed's ZeRO stage 3 divides among ranks.

Such a parameter is empty outside of its layer's forward and backward pass, and what this rank has
of it is in `ds_tensor`, padded so that all ranks have as much. Nothing of DeepSpeed is imported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hook_layer.format.statistics_block import Shard

__all__ = ["zero_part"]


def zero_part(parameter: Tensor) -> tuple[Tensor, Shard | None] | None:
    """Return what this rank has of a parameter, and which part it is; None of a plain one."""
    known: Any = parameter
    part = getattr(known, "ds_tensor", None)
    if part is None:
        return None
    group = getattr(known, "ds_process_group", None)
    rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    flat, shape = part.detach().view(-1), tuple(map(int, known.ds_shape))
    own = flat[: min(max(int(known.ds_numel) - rank * flat.numel(), 0), flat.numel())]
    return (own.view(shape), None) if size == 1 else (own, Shard(shape, (rank,)))
