"""Elements of torch tensors, detached from autograd, and as numpy arrays."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hook_layer.format.statistics_block import Shard

__all__ = [
    "SAVED_AS_FLOAT32",
    "WHOLE",
    "host_array",
    "is_distributed",
    "own_shard",
    "plain",
    "shard_of",
    "type_name",
]

SAVED_AS_FLOAT32: Final = frozenset(
    {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2}
    | {torch.float8_e5m2fnuz}
)
"""Types that numpy does not have."""
WHOLE: Final = frozenset({Tensor, nn.Parameter})
"""Classes whose tensors own the memory of their elements."""


@cache
def type_name(dtype: torch.dtype) -> str:
    """Return the name of a type, e.g. `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def plain(tensor: Tensor) -> Tensor:
    """Return the value as a dense, detached tensor, without a copy if possible."""
    value = tensor.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.dequantize() if value.is_quantized else value


def host_array(value: Tensor) -> NDArray[Any]:
    """Return the elements of a tensor that `readable` returned, in host memory, without a copy.

    The array must not outlive the tensor, and may be read-only. `Tensor.numpy` would forbid
    resizing the tensor's memory permanently, which FSDP needs.
    """
    resolved = value.resolve_conj().resolve_neg()
    if resolved.dtype == torch.bool:  # not supported by numpy < 1.25
        return np.from_dlpack(resolved.view(torch.uint8)).view(np.bool_)
    array: NDArray[Any] = np.from_dlpack(resolved)
    return array


def own_shard(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor; any other tensor unchanged.

    Unlike operations on a DTensor, this never waits for other ranks.
    """
    if not is_distributed(tensor):
        return tensor
    with torch.no_grad():
        shard: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return shard


def is_distributed(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor."""
    kind: Any = type(tensor)  # Any, because torch.compile does not narrow the type of tensors
    return kind not in WHOLE and hasattr(kind, "to_local") and hasattr(kind, "device_mesh")


def shard_of(tensor: Tensor) -> Shard | None:
    """Return the position of this rank's part in a DTensor; None if it has the whole tensor."""
    if not is_distributed(tensor):
        return None
    known: Any = tensor
    mesh, placements = known.device_mesh, known.placements
    divided = [dim for dim, each in enumerate(placements) if not each.is_replicate()]
    divided = [dim for dim in divided if mesh.size(dim) > 1]
    if not divided:
        return None
    place = mesh.get_coordinate()
    is_sum = any(placements[dim].is_partial() for dim in divided)
    part = None if is_sum or place is None else tuple(place[dim] for dim in divided)
    return Shard(tuple(map(int, tensor.shape)), part)
