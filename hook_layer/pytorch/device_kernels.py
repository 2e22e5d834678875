"""Computes partial statistics of rows of tensors on a device, and combines them on the host.

The flattened tensors are reduced as one matrix with rows of `ROW` elements: by a few dozen kernels,
or by one on CUDA. Shapes: T tensors, P rows in total.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture.statistics import statistics_row

__all__ = ["ROW", "combined", "partial_results"]

logger = logging.getLogger("stepwatch")

ROW: Final = 8192
_MAX_ROWS: Final = 1024  # rows reduced at a time, to limit device memory
_COMPUTED_IN_FLOAT32: Final = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.bool, torch.uint8, torch.int8}
)
_TYPES_OF_TRITON: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_OF_DEVICES: Final = "CUDA error", "HIP error"
"""Start of messages of errors that any other use of the device would raise, too."""


class _Triton:
    """Whether this process can use Triton, which needs a C compiler."""

    is_broken = False


def partial_results(
    tensors: Sequence[Tensor], stream: torch.cuda.Stream | None
) -> tuple[Tensor, list[int]]:
    """Return partial results of the rows, as `_reduced` defines them, and each tensor's row count.

    Args:
        tensors: Flat tensors [size] of one device and type, none empty, none a lazy negative.
        stream: The device's current CUDA stream, if it has one.
    """
    fused = _fused_results(tensors, stream)
    if fused is not None:
        return fused
    results = torch.cat([_partials(group) for group in _groups(tensors)])
    return results, [-(-tensor.numel() // ROW) for tensor in tensors]


def combined(
    sizes: Sequence[int], num_rows: Sequence[int], partials: NDArray[np.float64]
) -> list[tuple[float, ...]]:
    """Combine the partial results of rows into one row of statistics per tensor.

    Args:
        sizes: Numbers of the tensors' elements, [T].
        num_rows: How many rows each tensor has, [T].
        partials: Partial results of all rows, in order, [P, 10].
    """
    starts: NDArray[np.int64] = np.cumsum(num_rows) - np.array(num_rows)
    count, num_nan, low, high, factor, total, rest, mean, absolute, squared = partials.T
    counts, num_nans = np.add.reduceat(count, starts), np.add.reduceat(num_nan, starts)
    lows, highs = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    with np.errstate(all="ignore"):
        # Scaling by about the tensor's largest element prevents overflow and underflow.
        largest = np.maximum(np.maximum(highs, -lows), np.finfo(np.float64).tiny)
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
        scale = 1 / factor / np.repeat(unit, num_rows)
        means = np.add.reduceat(scale * (total + rest), starts) / counts
        offset = scale * mean - np.repeat(means, num_rows)
        moved = scale * (total + rest - count * mean)
        squares = np.square(scale) * squared + offset * (2 * moved + count * offset)
        variances = np.maximum(np.add.reduceat(squares, starts), 0) / counts
        variances[lows == highs] = 0
        columns = {
            "low": lows,
            "high": highs,
            "mean": means * unit,
            "std": np.sqrt(variances) * unit,
            "l1": np.add.reduceat(scale * absolute, starts) * unit,
            "l2": np.sqrt((variances + np.square(means)) * counts) * unit,
        }
    columns = {name: np.where(counts, column, np.nan) for name, column in columns.items()}
    num_infs = np.array(sizes) - counts - num_nans
    return [
        statistics_row(size, int(nan), int(inf), **dict(zip(columns, row, strict=True)))
        for size, nan, inf, *row in zip(
            sizes,
            num_nans,
            num_infs,
            *(column.tolist() for column in columns.values()),
            strict=True,
        )
    ]


def _fused_results(
    tensors: Sequence[Tensor], stream: torch.cuda.Stream | None
) -> tuple[Tensor, list[int]] | None:
    """Return partial results from one kernel; None if it cannot be used."""
    first = tensors[0]
    if stream is None or first.dtype not in _TYPES_OF_TRITON or _Triton.is_broken:
        return None
    # The elements of subclasses need not be at the tensor's address.
    if not all(type(t) is Tensor and t.is_contiguous() and t.data_ptr() for t in tensors):
        return None
    try:
        return _kernel()(tensors, stream)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        if any(text in str(error) for text in _OF_DEVICES):
            raise
        # Compilation fails, for any reason: fall back to the other implementation.
        _Triton.is_broken = True
        logger.warning(
            "statistics are slower than necessary, because Triton does not work here (%s: %.200s)",
            type(error).__name__,
            error,
        )
        return None


@cache
def _kernel() -> Callable[[Sequence[Tensor], torch.cuda.Stream], tuple[Tensor, list[int]]]:
    # Triton is not installed everywhere, and slow to import.
    from hook_layer.pytorch.triton_kernels import launched  # noqa: PLC0415

    return launched


def _groups(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Divide the tensors' elements, in order, into lists of at most `_MAX_ROWS` rows."""
    group: list[Tensor] = []
    free = _MAX_ROWS
    for tensor in tensors:
        start, size = 0, tensor.numel()
        while start < size:
            stop = min(size, start + free * ROW)
            group.append(tensor if stop - start == size else tensor[start:stop])
            free -= -(-(stop - start) // ROW)
            start = stop
            if not free:
                yield group
                group, free = [], _MAX_ROWS
    if group:
        yield group


def _partials(parts: Sequence[Tensor]) -> Tensor:
    """Return the partial results of all rows, [P, 10]."""
    first = parts[0]
    sizes = tuple(part.numel() for part in parts)
    mps = first.device.type == "mps"  # has no float64
    work = torch.float32 if mps or first.dtype in _COMPUTED_IN_FLOAT32 else torch.float64
    if len(parts) == 1 and (sizes[0] <= ROW or sizes[0] % ROW == 0):
        return _reduced(first.to(work).view(-1, min(sizes[0], ROW)), None)
    lasts, lengths = _layout(sizes)
    zeros = torch.zeros(ROW, dtype=first.dtype, device=first.device)
    filled = [part for pair in zip(parts, (zeros[n:] for n in lasts), strict=True) for part in pair]
    own = torch.tensor(lengths, device="cpu").to(first.device, non_blocking=True)
    inside = torch.arange(ROW, device=first.device) < own[:, None]
    return _reduced(torch.cat(filled).to(work).view(-1, ROW), inside)


@lru_cache(maxsize=64)
def _layout(sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return the number of elements in each tensor's last row, and in every row."""
    lasts = [(size - 1) % ROW + 1 for size in sizes]
    lengths: list[int] = []
    for size, last in zip(sizes, lasts, strict=True):
        lengths += [ROW] * ((size - 1) // ROW) + [last]
    return lasts, lengths


def _reduced(values: Tensor, inside: Tensor | None) -> Tensor:
    """Return the partial results of the rows of a matrix [P, up to ROW]; `inside` masks elements.

    For each row, [P, 10]: number of finite elements, number of NaN, min and max of the finite
    elements, and a factor. Then, for the finite elements times this factor: sum, its rounding
    error, approximate mean, l1 norm, and sum of squared deviations from that mean.
    """
    work = values.dtype
    wide = work if values.device.type == "mps" else torch.float64
    finite = (values - values).eq_(0).bool()
    if inside is not None:
        finite &= inside
    count = finite.sum(1, dtype=work)
    num_nan = values.ne(values).sum(1, dtype=work)
    low = values.where(finite, torch.inf).amin(1)
    high = values.where(finite, -torch.inf).amax(1)
    limit = 126 if work == torch.float32 else 1022
    largest = torch.maximum(high, -low).clamp_(min=0)
    factor = largest.log2_().floor_().clamp_(-limit, limit).neg_().exp2_()
    scaled = values.where(finite, 0).mul_(factor[:, None])
    absolute = scaled.abs().sum(1)
    exact = scaled.sum(1, dtype=wide)
    total = exact.to(work)
    rest = (exact - total).to(work)
    mean = total / count.clamp(min=1)
    squared = scaled.sub_(mean[:, None]).mul_(finite).square_().sum(1)
    columns = [count, num_nan, low, high, factor, total, rest, mean, absolute, squared]
    return torch.stack(columns, dim=1)
