"""Reductions of tensors that are not just many floats."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from hook_layer.pytorch.copies import BufferPool
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.tensor_backend import TorchBackend

BACKEND = TorchBackend(BufferPool(1 << 20), DeviceBatches())


def reduced(values: torch.Tensor, name: str, *, absolute: bool = False) -> float:
    return float(BACKEND.reduce(values, (name, absolute)).array())


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_whole_numbers_have_all_of_them(dtype: torch.dtype) -> None:
    values = torch.tensor([0, 1, 1, 1, 0, 1]).to(dtype)
    floats = values.numpy().astype("f8")
    for name, expected in {
        "min": floats.min(),
        "max": floats.max(),
        "mean": floats.mean(),
        "median": np.median(floats),
        "std": floats.std(ddof=1),
        "variance": floats.var(ddof=1),
        "sum": floats.sum(),
        "prod": floats.prod(),
        "l1": np.abs(floats).sum(),
        "l2": np.sqrt(np.square(floats).sum()),
    }.items():
        assert reduced(values, name) == pytest.approx(expected), name
        assert reduced(values, name, absolute=True) == pytest.approx(expected), name


@pytest.mark.parametrize("name", ["std", "variance"])
def test_one_number_has_no_spread_and_nobody_is_warned_of_it(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(reduced(torch.tensor([3.0]), name))
        assert math.isnan(reduced(torch.tensor(3), name))
