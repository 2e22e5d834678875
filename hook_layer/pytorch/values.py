"""The elements of torch tensors, apart from autograd, and as numpy arrays."""

from __future__ import annotations

from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["SAVED_AS_FLOAT32", "host_array", "plain"]

SAVED_AS_FLOAT32: Final = frozenset(
    getattr(torch, name)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
    if hasattr(torch, name)
)
"""Types that numpy does not have."""


def plain(tensor: Tensor) -> Tensor:
    """Return the value as a dense tensor apart from autograd, without a copy if possible."""
    value = tensor.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.dequantize() if value.is_quantized else value


def host_array(value: Tensor) -> NDArray[Any]:
    """Return the elements of a plain tensor in the host's memory, without a copy if possible."""
    try:
        return value.resolve_conj().resolve_neg().numpy()
    except (RuntimeError, TypeError):  # a subclass that has no memory of its own
        return torch.empty(value.shape, dtype=value.dtype, device="cpu").copy_(value).numpy()
