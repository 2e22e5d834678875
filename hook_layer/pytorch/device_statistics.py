"""The summaries of many tensors on one accelerator, in a handful of calls for all of them.

The flattened tensors are laid side by side. Their whole rows of `ROW` elements are reduced as one
matrix; what is left of each tensor behind its last whole row makes a second, padded matrix. The
rows' partial results come to the host in one copy, where they are combined in float64 by the
formula of Chan, Golub and LeVeque for sums of squared deviations ("Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances", 1979), so that a std never is the difference of two
nearly equal numbers. NaN and Inf among the elements, and squares that overflow or vanish, show in
the partial results; such tensors are summarised once more, each by itself.

Shapes: T tensors, R whole rows of all of them, P = R + T rows of partial results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.statistics import SMALLEST_SQUARED, statistics_row

__all__ = ["ROW", "device_statistics"]

ROW: Final = 8192
_MAX_ELEMENTS: Final = 1 << 25  # laid side by side at a time
_COMPUTED_IN_FLOAT32: Final = frozenset(
    getattr(torch, name) for name in ("float16", "bfloat16", "float32", "bool", "uint8", "int8")
)


def device_statistics(tensors: Sequence[Tensor]) -> list[tuple[float, ...]]:
    """Return the statistics of tensors of one device and type, a row for each.

    Args:
        tensors: Flat tensors [size] of real numbers or booleans, none empty.
    """
    sizes = [tensor.numel() for tensor in tensors]
    windows = _windows(sizes)
    partials = torch.cat([_partials(tensors[start:stop]) for start, stop in windows])
    host = partials.cpu().numpy().astype(np.float64)
    rows: list[tuple[float, ...]] = []
    position = 0
    for start, stop in windows:
        end = position + sum(size // ROW + 1 for size in sizes[start:stop])
        rows += _combined(np.array(sizes[start:stop]), host[position:end])
        position = end
    pairs = zip(rows, tensors, strict=True)
    return [row if _is_sound(row) else _exact_statistics(tensor) for row, tensor in pairs]


def _partials(tensors: Sequence[Tensor]) -> Tensor:
    """Return the partial results of all whole rows, then of all rests, [P, 6]."""
    device = tensors[0].device
    mps = device.type == "mps"  # has no float64
    work = torch.float32 if mps or tensors[0].dtype in _COMPUTED_IN_FLOAT32 else torch.float64
    wide = torch.float32 if mps else torch.float64
    sizes = [tensor.numel() for tensor in tensors]
    ends = [size // ROW * ROW for size in sizes]
    whole = [tensor[:end].view(-1, ROW) for tensor, end in zip(tensors, ends, strict=True)]
    # Where nothing is left, the last element stands in for min and max, and counts in no sum.
    firsts = [min(end, size - 1) for end, size in zip(ends, sizes, strict=True)]
    rests = [tensor[first:] for tensor, first in zip(tensors, firsts, strict=True)]
    lengths = _lengths(tuple(sizes), device)
    present = lengths.clamp(min=1)
    column = torch.arange(ROW, device=device)
    index = (torch.cumsum(present, 0) - present)[:, None] + torch.minimum(
        column, present[:, None] - 1
    )
    rest = torch.cat(rests).to(work)[index]
    partials = [_reduced(rest, wide, present, column >= lengths[:, None])]
    if any(len(rows) for rows in whole):
        partials.insert(0, _reduced(torch.cat(whole).to(work), wide, ROW))
    return torch.cat(partials)


@lru_cache(maxsize=64)
def _lengths(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return how many elements are left of each tensor behind its whole rows, [T]."""
    with torch.inference_mode(mode=False):  # used again, possibly in training
        return (torch.tensor(sizes, device="cpu") % ROW).to(device)


def _reduced(
    values: Tensor, wide: torch.dtype, lengths: Tensor | int, padding: Tensor | None = None
) -> Tensor:
    """Return the partial results of the rows of a matrix, which is written to.

    Args:
        values: The elements, [rows, ROW].
        wide: Type of the results.
        lengths: How many elements of a row count.
        padding: Those that do not.

    Returns:
        Min, max, sum, l1, the value near the mean from which deviations are measured, and the sum
        of their squares, [rows, 6].
    """
    low, high = torch.aminmax(values, dim=1)
    if padding is not None:
        values.masked_fill_(padding, 0)
    total = values.sum(dim=1, dtype=wide)
    absolute = values.abs().sum(dim=1)
    center = (total / lengths).to(values.dtype)
    values.sub_(center[:, None])
    if padding is not None:
        values.masked_fill_(padding, 0)
    columns = [low, high, total, absolute, center, values.square_().sum(dim=1)]
    return torch.stack([column.to(wide) for column in columns], dim=1)


def _combined(sizes: NDArray[np.int64], partials: NDArray[np.float64]) -> list[tuple[float, ...]]:
    """Combine the partial results of tensors, whole rows before rests, to a row for each."""
    num_whole = sizes // ROW
    tensor_numbers = np.arange(len(sizes))
    owners = np.concatenate([np.repeat(tensor_numbers, num_whole), tensor_numbers])
    order = np.argsort(owners, kind="stable")
    counts = np.concatenate([np.full(int(num_whole.sum()), ROW), sizes % ROW])[order]
    low, high, total, absolute, center, squares = partials[order].T
    starts = np.cumsum(num_whole + 1) - num_whole - 1
    with np.errstate(all="ignore"):
        mean = np.add.reduceat(total, starts) / sizes
        away = center - np.repeat(mean, num_whole + 1)
        moved = squares + 2 * away * (total - counts * center) + counts * np.square(away)
        variance = np.maximum(np.add.reduceat(np.where(counts, moved, 0), starts), 0) / sizes
        columns = [
            np.minimum.reduceat(low, starts),
            np.maximum.reduceat(high, starts),
            mean,
            np.sqrt(variance),
            np.add.reduceat(absolute, starts),
            np.sqrt((variance + np.square(mean)) * sizes),
        ]
    rows = np.stack(columns, axis=1).tolist()
    return [_row(int(size), *row) for size, row in zip(sizes, rows, strict=True)]


def _row(size: int, *numbers: float) -> tuple[float, ...]:
    names = ("low", "high", "mean", "std", "l1", "l2")
    return statistics_row(size, 0, 0, **dict(zip(names, numbers, strict=True)))


def _is_sound(row: tuple[float, ...]) -> bool:
    """Tell whether all elements are finite, and their squares are neither Inf nor lost."""
    magnitude = max(-row[3], row[4])
    return all(map(math.isfinite, row)) and (magnitude == 0 or magnitude >= SMALLEST_SQUARED)


def _exact_statistics(flat: Tensor) -> tuple[float, ...]:
    """Return the statistics of the finite elements, [size], in float64 and three passes."""
    if flat.device.type == "mps":  # has no float64
        flat = flat.cpu()
    values = flat.to(torch.float64)
    finite = torch.isfinite(values)
    bounds = [
        torch.isnan(values).sum(),
        finite.sum(),
        torch.where(finite, values, math.inf).min(),
        torch.where(finite, values, -math.inf).max(),
    ]
    num_nan, count, low, high = torch.stack([b.to(torch.float64) for b in bounds]).tolist()
    num_inf = flat.numel() - int(num_nan) - int(count)
    if count == 0:
        return statistics_row(flat.numel(), int(num_nan), num_inf)
    # Scaled, so that neither the squares of huge values overflow nor those of tiny ones vanish.
    scale = max(abs(low), abs(high)) or 1.0
    values = torch.where(finite, values, 0.0).div_(scale)
    sums = [values.sum(), values.abs().sum(), values.square().sum()]
    total, absolute, squares = torch.stack(sums).tolist()
    mean = total / count
    deviations = float(torch.where(finite, values - mean, 0.0).square().sum())
    return statistics_row(
        flat.numel(),
        int(num_nan),
        num_inf,
        low=low,
        high=high,
        mean=mean * scale,
        std=math.sqrt(deviations / count) * scale,
        l1=absolute * scale,
        l2=math.sqrt(squares) * scale,
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
