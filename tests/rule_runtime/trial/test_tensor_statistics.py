"""Oracle: exact rational arithmetic over the finite elements."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.trial import tensor_statistics as statistics_module
from rule_runtime.trial.tensor_statistics import tensor_statistics


def exact(tensor: npt.NDArray[Any]) -> dict[str, float]:
    values = [float(x) for x in tensor.reshape(-1)]
    finite = [Fraction(x) for x in values if math.isfinite(x)]
    row = dict.fromkeys(STATISTICS_COLUMNS, math.nan)
    row["size"] = len(values)
    row["nan"] = sum(math.isnan(x) for x in values)
    row["inf"] = sum(math.isinf(x) for x in values)
    if finite:
        n = len(finite)
        mean = sum(finite) / n
        row |= {
            "min": float(min(finite)),
            "max": float(max(finite)),
            "mean": float(mean),
            "std": root(sum((x - mean) ** 2 for x in finite) / n),
            "abs_mean": float(sum(map(abs, finite)) / n),
            "l1": as_float(sum(map(abs, finite), Fraction())),
            "l2": root(sum((x * x for x in finite), Fraction())),
        }
    return row


def as_float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf


def root(x: Fraction) -> float:
    """Square root of a fraction that may be far outside of float64."""
    if x == 0:
        return 0.0
    shift = (x.numerator.bit_length() - x.denominator.bit_length()) // 2
    scaled = float(x / Fraction(4) ** shift)
    try:
        return math.ldexp(math.sqrt(scaled), shift)
    except OverflowError:
        return math.inf


def assert_agrees(tensor: npt.NDArray[Any]) -> None:
    expected = exact(tensor)
    found = dict(zip(STATISTICS_COLUMNS, tensor_statistics(tensor), strict=True))
    spread = expected["max"] - expected["min"] if expected["size"] else 0.0
    for name, value in expected.items():
        scale = spread if name in ("mean", "std") else 0.0
        absolute = 1e-12 * scale if math.isfinite(scale) else 0.0
        assert found[name] == pytest.approx(value, rel=1e-9, abs=absolute, nan_ok=True), name


ANY_FLOAT = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16]), hnp.array_shapes(max_dims=3, min_side=0)
)
ANY_INTEGER = hnp.arrays(
    st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_]),
    hnp.array_shapes(max_dims=2),
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(ANY_FLOAT, ANY_INTEGER))
def test_agrees_with_exact_arithmetic(tensor: npt.NDArray[Any]) -> None:
    assert_agrees(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        np.array(3.5),
        np.empty((0, 4)),
        np.full(5, np.nan),
        np.array([np.inf, -np.inf, np.nan, 2.0]),
        1e8 + np.arange(10) * 1e-2,
        np.array([1e300, 1e300, -1e300]),
        np.array([1e-300, 3e-300]),
        np.float32([3e38, 3e38]),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.arange(6, dtype=">f8"),
    ],
)
def test_hard_cases(tensor: npt.NDArray[Any]) -> None:
    assert_agrees(tensor)


def test_chunks_are_merged_without_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_module, "_CHUNK", 7)
    rng = np.random.default_rng(0)
    tensor = rng.normal(1e6, 1e-3, 100)
    tensor[::9] = np.nan
    assert_agrees(tensor)


def test_float32_sums_are_taken_in_float64() -> None:
    tensor = np.full(1 << 21, 0.1, dtype=np.float32)
    row = dict(zip(STATISTICS_COLUMNS, tensor_statistics(tensor), strict=True))
    assert row["mean"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert row["std"] < 1e-12


def test_complex_and_strings() -> None:
    row = dict(zip(STATISTICS_COLUMNS, tensor_statistics(np.array([3 + 4j, np.nan])), strict=True))
    assert (row["size"], row["nan"], row["inf"]) == (2, 1, 0)
    assert (row["l1"], row["l2"], row["abs_mean"]) == (5, 5, 5)
    assert math.isnan(row["mean"])
    row = dict(zip(STATISTICS_COLUMNS, tensor_statistics(np.array(["a", "b"])), strict=True))
    assert row["size"] == 2
    assert all(math.isnan(value) for name, value in row.items() if name != "size")
