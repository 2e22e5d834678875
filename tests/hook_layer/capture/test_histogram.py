from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hook_layer.capture.histogram import HistogramCounter, bucket_limits
from hook_layer.format.summary import HistogramSummary

LIMITS = bucket_limits()
REAL_TYPES = st.sampled_from(
    ["f2", "f4", "f8", ">f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
).map(np.dtype)


def counted(array: NDArray[np.generic]) -> HistogramSummary | None:
    return HistogramCounter().summary(array)


def searched(array: NDArray[np.generic]) -> NDArray[np.float64]:
    """Count by searching the limits for every number, in float64."""
    numbers = np.ravel(array).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    buckets = np.searchsorted(LIMITS[1:-1], numbers, side="right")
    return np.bincount(buckets, minlength=len(LIMITS) - 1).astype(np.float64)


def spread(histogram: HistogramSummary) -> NDArray[np.float64]:
    """Return the counts of all buckets, also of those that are not stored."""
    counts = np.zeros(len(LIMITS) - 1)
    at = np.searchsorted(LIMITS[1:], histogram.limits)
    assert LIMITS[1:][at].tolist() == list(histogram.limits)
    counts[at] = histogram.counts
    return counts


@np.errstate(all="ignore")
def check(array: NDArray[np.generic]) -> None:
    histogram = counted(array)
    finite = np.ravel(array).astype(np.float64)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        assert histogram is None
        return
    assert histogram is not None
    np.testing.assert_array_equal(spread(histogram), searched(array))
    assert sum(histogram.counts) == histogram.num == finite.size
    assert (histogram.min, histogram.max) == (finite.min(), finite.max())
    bound = 1e-12 * np.abs(finite).sum()
    assert histogram.sum == pytest.approx(finite.sum(), rel=1e-9, abs=bound, nan_ok=True)
    assert histogram.sum_squares == pytest.approx(np.square(finite).sum(), rel=1e-9)


def test_the_limits_are_those_of_tensorflow() -> None:
    positive = LIMITS[LIMITS > 0]
    assert positive[:3].tolist() == [1e-12, 1e-12 * 1.1, 1e-12 * 1.1 * 1.1]
    assert positive[-2] < 1e20 <= positive[-2] * 1.1
    assert positive[-1] == np.finfo(np.float64).max
    assert LIMITS.tolist() == [*(-positive[::-1]).tolist(), 0.0, *positive.tolist()]


@given(hnp.arrays(REAL_TYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=30)))
def test_every_finite_number_is_counted_in_its_bucket(array: NDArray[np.generic]) -> None:
    check(array)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["f2", "f4", "f8", "i4", "i8"]),
    st.integers(20_000, 300_000),
)
def test_large_arrays_of_any_bits_are_counted_as_small_ones(
    seed: int, dtype: str, size: int
) -> None:
    bits = np.random.default_rng(seed).bytes(size * np.dtype(dtype).itemsize)
    check(np.frombuffer(bits, dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("toward", [-np.inf, 0.0, np.inf])
def test_numbers_beside_a_limit_are_on_the_right_side(dtype: str, toward: float) -> None:
    with np.errstate(over="ignore"):
        limits = LIMITS.astype(dtype)
    limits = limits[np.isfinite(limits)]
    with np.errstate(over="ignore"):
        beside = limits if toward == 0 else np.nextafter(limits, limits.dtype.type(toward))
    check(np.tile(beside, 30))
    between = (limits.astype("f8")[:-1] + limits.astype("f8")[1:]) / 2
    check(np.tile(between, 30))


def test_doubles_beside_the_edges_of_float32_are_on_the_right_side() -> None:
    # Where a double is rounded to a float32 of another bucket, its own bucket counts.
    rounded = LIMITS[np.abs(LIMITS) < 1e20].astype("f4").astype("f8")
    half = np.spacing(rounded.astype("f4")).astype("f8") / 2
    check(np.concatenate([rounded + f * half for f in (-1.01, -0.99, 0, 0.99, 1.01)] * 10))


@pytest.mark.parametrize("size", [3, 40_000, 300_000])
def test_nan_and_infinity_are_left_out(size: int) -> None:
    numbers = np.linspace(-2, 5, size, dtype="f4")
    numbers[: size // 3] = np.array([np.nan, np.inf, -np.inf], "f4")[np.arange(size // 3) % 3]
    check(numbers)
    assert counted(np.full(size, np.nan)) is None
    assert counted(np.empty((0, size))) is None


def test_zeros_of_both_signs_are_zeros() -> None:
    histogram = counted(np.concatenate([np.zeros(20_000, "f4"), -np.zeros(20_000, "f4")]))
    assert histogram is not None
    assert (list(histogram.limits), list(histogram.counts)) == ([1e-12], [40_000])


def test_the_order_of_the_dimensions_costs_no_copy() -> None:
    array = np.arange(2_000_000, dtype="f4").reshape(1000, 2000)
    counter = HistogramCounter()
    counter.summary(array)
    tracemalloc.start()
    assert counter.summary(array.T) == counter.summary(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array.nbytes


def test_memory_is_bounded_however_large_the_tensor() -> None:
    array = np.zeros(16_000_000, "f4")
    counter = HistogramCounter()
    counter.summary(array[:1_000_000])
    tracemalloc.start()
    counter.summary(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_gaps_between_buckets_are_kept_and_no_others() -> None:
    histogram = counted(np.array([-1.0, 1.0, 1.0]))
    assert histogram is not None
    assert list(histogram.counts) == [1, 0, 2]
    assert histogram.limits[0] <= -0.9 < 0.9 <= histogram.limits[1] <= 1.0 < histogram.limits[2]


def test_the_counts_are_those_of_summary_writer() -> None:
    summary = pytest.importorskip("torch.utils.tensorboard.summary")
    values = np.random.default_rng(0).standard_normal(50_000) * 0.02
    # The default buckets of SummaryWriter, which end at +-1e20 where TensorFlow's do not.
    theirs = summary.make_histogram(values, LIMITS[1:-1].tolist())
    ours = counted(values)
    assert ours is not None
    assert ours.min == theirs.min
    assert ours.max == theirs.max
    assert ours.num == theirs.num
    assert ours.sum == pytest.approx(theirs.sum)
    assert ours.sum_squares == pytest.approx(theirs.sum_squares)
    used = {limit: n for limit, n in zip(theirs.bucket_limit, theirs.bucket, strict=True) if n}
    assert {limit: n for limit, n in zip(ours.limits, ours.counts, strict=True) if n} == used
