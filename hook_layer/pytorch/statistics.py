"""The summaries of many torch tensors at once.

Two ways to the same numbers:

* On the CPU each tensor is read once from memory, in chunks that stay in the second-level cache
  while five reductions run over them.
* On an accelerator the tensors are laid side by side and reduced row by row in a handful of calls
  for all of them; only the rows' partial results are copied to the host, once.

Both accumulate sums in float64, and add the chunks' or rows' partial results in float64. What the
fast way cannot do well is done again slowly, one tensor at a time: NaN and Inf among the elements,
squares that overflow or vanish, and a std that would be the difference of two nearly equal numbers.

Shapes: T tensors, R rows, C columns of `STATISTICS_COLUMNS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.pytorch.device_statistics import device_sums
from hook_layer.statistics import NO_STATISTICS, number_statistics, statistics_row

__all__ = ["TorchStatistics", "tensor_statistics"]

_CHUNK: Final = 1 << 16
_WIDER: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
# Squares in float32 of elements between these neither overflow nor vanish beside the largest.
_LARGEST_SQUARED, _SMALLEST_SQUARED = 1e15, 1e-12
# var / mean(x^2) below which the difference of squares has lost too many digits.
_CANCELLATION: Final = 0.02


class TorchStatistics:
    """Statistics of the tensors of one capture, as they are now.

    Args:
        tensors: Any shapes, types and devices.
    """

    __slots__ = ("_rows",)

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._rows: list[tuple[float, ...]] = [NO_STATISTICS] * len(tensors)
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
        with torch.no_grad():
            for position, tensor in enumerate(tensors):
                value = _plain(tensor)
                if value is None:
                    continue
                if value.device.type == "cpu" or value.numel() == 0:
                    self._rows[position] = _cpu_statistics(value)
                else:
                    groups.setdefault((value.device, value.dtype), []).append((position, value))
            for group in groups.values():
                rows = device_sums([value for _, value in group])
                for (position, value), sums in zip(group, rows, strict=True):
                    self._rows[position] = _row(value, *(float(number) for number in sums))

    def rows(self) -> NDArray[np.float64]:
        """Return the statistics, [T, C]."""
        return np.array(self._rows, dtype=np.float64)


def tensor_statistics(tensor: Tensor) -> tuple[float, ...]:
    """Return the statistics of one tensor, one number for each of `STATISTICS_COLUMNS`."""
    return tuple(float(number) for number in TorchStatistics([tensor]).rows()[0])


def _plain(tensor: Tensor) -> Tensor | None:
    """Return the elements as a dense tensor [size], without a copy if possible; None if complex."""
    value = tensor.detach()
    if value.is_complex() or value.is_quantized:
        return None
    if value.layout != torch.strided:
        value = value.to_dense()
    if value.is_contiguous():
        return value.view(-1)
    # Any order of the elements will do, e.g. that of channels-last tensors.
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda axis: strides[axis], reverse=True)
    return value.permute(order).reshape(-1)


def _cpu_statistics(flat: Tensor) -> tuple[float, ...]:
    """Return the statistics of a tensor on the CPU, [size]."""
    size = flat.numel()
    if size == 1:
        return number_statistics(float(flat))
    if size == 0:
        return statistics_row(0, 0, 0)
    work = _WIDER.get(flat.dtype, flat.dtype)
    if work not in (torch.float32, torch.float64):
        work = torch.float64
    total = squares = l1 = 0.0
    lows, highs = [], []
    buffer = torch.empty(min(size, _CHUNK), dtype=work, device="cpu")
    for part in _chunks(flat):
        chunk = part.to(work)
        absolute = buffer[: chunk.numel()]
        low, high = torch.aminmax(chunk)
        lows.append(low)
        highs.append(high)
        total += float(chunk.sum(dtype=torch.float64))
        torch.abs(chunk, out=absolute)
        l1 += float(absolute.sum())
        # torch adds pairwise; a dot product of equal numbers in float32 would be off by 1e-4.
        squares += float(absolute.mul_(absolute).sum())
    return _row(flat, min(map(float, lows)), max(map(float, highs)), total, squares, l1)


def _row(  # noqa: PLR0917 - the five sums
    flat: Tensor, low: float, high: float, total: float, squares: float, l1: float
) -> tuple[float, ...]:
    """Turn sums over `flat` [size] into statistics; compute exactly where the sums do not do."""
    size = flat.numel()
    magnitude = max(abs(low), abs(high))
    if not (math.isfinite(total) and math.isfinite(squares)) or magnitude > _LARGEST_SQUARED:
        return _exact_statistics(flat)
    if 0.0 < magnitude < _SMALLEST_SQUARED:
        return _exact_statistics(flat)
    mean = total / size
    variance = squares / size - mean * mean
    if variance < _CANCELLATION * squares / size:
        variance = _squared_deviations(flat, mean) / size
    return statistics_row(
        size,
        0,
        0,
        low=low,
        high=high,
        mean=mean,
        std=math.sqrt(variance),
        l1=l1,
        l2=math.sqrt(squares),
    )


def _chunks(flat: Tensor) -> Sequence[Tensor]:
    if flat.numel() <= _CHUNK:
        return (flat,)
    return flat.split(_CHUNK)  # type: ignore[no-any-return, no-untyped-call]


def _squared_deviations(flat: Tensor, mean: float) -> float:
    """Return the sum of (x - mean)^2."""
    total = 0.0
    for part in _chunks(flat):
        values = part.to(torch.float64) - mean
        total += float(torch.dot(values, values))
    return total


def _exact_statistics(flat: Tensor) -> tuple[float, ...]:
    """Return the statistics of the finite elements, in float64 and several passes."""
    if flat.device.type == "mps":  # has no float64
        flat = flat.cpu()
    finite = torch.isfinite(flat)
    num_nan = int(torch.isnan(flat).sum())
    num_inf = flat.numel() - num_nan - int(finite.sum())
    count = flat.numel() - num_nan - num_inf
    if count == 0:
        return statistics_row(flat.numel(), num_nan, num_inf)
    chosen = flat if count == flat.numel() else flat[finite]
    low, high = (float(value) for value in torch.aminmax(chosen.to(torch.float64)))
    # Scaled, so that neither the squares of huge values overflow nor those of tiny ones vanish.
    scale = max(abs(low), abs(high)) or 1.0
    chunks = _chunks(chosen)

    def summed(function: Callable[[Tensor], Tensor]) -> float:
        return sum(float(function(chunk.to(torch.float64) / scale).sum()) for chunk in chunks)

    mean = summed(lambda values: values) / count
    deviations = summed(lambda values: (values - mean).square())
    return statistics_row(
        flat.numel(),
        num_nan,
        num_inf,
        low=low,
        high=high,
        mean=mean * scale,
        std=math.sqrt(deviations / count) * scale,
        l1=summed(torch.abs) * scale,
        l2=math.sqrt(summed(torch.square)) * scale,
    )
