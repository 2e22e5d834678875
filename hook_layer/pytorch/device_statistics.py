"""Partial sums of many tensors on one accelerator, in a handful of calls for all of them.

The flattened tensors are laid side by side. Their whole rows of `ROW` elements are reduced as one
matrix; what is left of each tensor behind its last whole row makes a second, padded matrix. The
rows' partial results come to the host in one copy.

Shapes: T tensors, R whole rows of all of them, P = R + T rows of partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["ROW", "device_sums"]

ROW: Final = 4096
_MAX_ELEMENTS: Final = 1 << 27  # laid side by side at a time
_NARROW: Final = (torch.float16, torch.bfloat16, torch.float32)


def device_sums(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return `(min, max, sum, sum of squares, l1)` of tensors of one device and type, [T, 5].

    Args:
        tensors: Flat tensors [size], none empty.
    """
    sizes = [tensor.numel() for tensor in tensors]
    windows = _windows(sizes)
    partials = torch.cat([_partials(tensors[start:stop]) for start, stop in windows])
    host = partials.cpu().numpy().astype(np.float64)
    sums, position = [], 0
    for start, stop in windows:
        num_whole = np.array(sizes[start:stop]) // ROW
        end = position + int(num_whole.sum()) + len(num_whole)
        tensor_numbers = np.arange(len(num_whole))
        owners = np.concatenate([np.repeat(tensor_numbers, num_whole), tensor_numbers])
        part = host[position:end][np.argsort(owners, kind="stable")]
        sums.append(_combine(part, np.cumsum(num_whole + 1) - num_whole - 1))
        position = end
    return np.concatenate(sums)


def _partials(tensors: Sequence[Tensor]) -> Tensor:
    """Return `(min, max, sum, sum of squares, l1)` of all whole rows, then of all rests, [P, 5]."""
    mps = tensors[0].device.type == "mps"  # has no float64
    work = torch.float32 if mps or tensors[0].dtype in _NARROW else torch.float64
    wide = torch.float32 if mps else torch.float64
    whole = [tensor[: tensor.numel() // ROW * ROW].view(-1, ROW) for tensor in tensors]
    # Where nothing is left, the last element stands in for min and max, and counts in no sum.
    rests = [tensor[min(tensor.numel() // ROW * ROW, tensor.numel() - 1) :] for tensor in tensors]
    index, padding = _padding(tuple(tensor.numel() for tensor in tensors), tensors[0].device)
    rest = torch.cat(rests).to(work)[index]
    partials = [_reduced(rest, rest.masked_fill(padding, 0), wide)]
    if any(len(rows) for rows in whole):
        matrix = torch.cat(whole).to(work)
        partials.insert(0, _reduced(matrix, matrix, wide))
    return torch.cat(partials)


def _reduced(bounds: Tensor, addends: Tensor, wide: torch.dtype) -> Tensor:
    low, high = torch.aminmax(bounds, dim=1)
    columns = [
        low,
        high,
        addends.sum(dim=1, dtype=wide),
        addends.square().sum(dim=1),
        addends.abs().sum(dim=1),
    ]
    return torch.stack([column.to(wide) for column in columns], dim=1)


@lru_cache(maxsize=64)
def _padding(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return where each element of the padded rests lies among the rests, and which are padding.

    Returns:
        Index and mask, both [T, ROW].
    """
    with torch.inference_mode(mode=False):  # they are used again, possibly in training
        lengths = torch.tensor(sizes, device="cpu") % ROW
        present = lengths.clamp(min=1)
        first = torch.cumsum(present, 0) - present
        column = torch.arange(ROW, device="cpu")
        index = first[:, None] + torch.minimum(column[None, :], present[:, None] - 1)
        return index.to(device), (column[None, :] >= lengths[:, None]).to(device)


def _combine(part: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Combine rows of partial results; tensor t owns the rows from `starts[t]` on."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.stack(
            [
                np.minimum.reduceat(part[:, 0], starts),
                np.maximum.reduceat(part[:, 1], starts),
                np.add.reduceat(part[:, 2], starts),
                np.add.reduceat(part[:, 3], starts),
                np.add.reduceat(part[:, 4], starts),
            ],
            axis=1,
        )


def _windows(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Split the tensors into runs of bounded size together."""
    windows, start, held = [], 0, 0
    for position, size in enumerate(sizes):
        if position > start and held + size > _MAX_ELEMENTS:
            windows.append((start, position))
            start, held = position, 0
        held += size
    return [*windows, (start, len(sizes))]
