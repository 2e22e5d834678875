"""All implementations against plain numpy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hook_layer.capture.captured_step import ArraySnapshot, NumpyBackend
from hook_layer.capture.statistics import CHUNK, NO_STATISTICS, array_statistics
from hook_layer.format.index import STATISTICS_COLUMNS

pytest.importorskip("torch")

import torch

torch.set_num_threads(1)

from hook_layer.pytorch.device_kernels import ROW  # noqa: E402
from hook_layer.pytorch.device_statistics import DeviceBatches, DeviceStatistics  # noqa: E402
from tests.hook_layer.device_rows import device_statistics, torch_statistics  # noqa: E402

Row = tuple[float, ...]
TOLERANCE = 1e-5
MEAN_TOLERANCE = 1e-7
"""Error of a mean, as a share of the mean absolute value: positive and negative elements cancel."""


def oracle(values: NDArray[Any]) -> Row:
    """The statistics by their definitions; scaled by the largest where squares would overflow."""
    flat = values.astype(np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    counts = (flat.size, int(np.isnan(flat).sum()), int(np.isinf(flat).sum()))
    if finite.size == 0:
        return (*map(float, counts), *[math.nan] * 7)
    scale = float(np.abs(finite).max()) or 1.0
    scaled = finite / scale
    return (
        *map(float, counts),
        float(finite.min()),
        float(finite.max()),
        float(scaled.mean()) * scale,
        float(scaled.std()) * scale,
        float(np.abs(scaled).mean()) * scale,
        float(np.abs(scaled).sum()) * scale,
        float(np.sqrt(np.square(scaled).sum())) * scale,
    )


def tensor_statistics(tensor: torch.Tensor) -> Row:
    return tuple(torch_statistics([tensor]).rows()[0])


def by_device(tensor: torch.Tensor) -> Row:
    """The accelerators' way, which runs on the CPU as well."""
    return device_statistics([tensor.reshape(-1)])[0]


IMPLEMENTATIONS: dict[str, Callable[[NDArray[Any]], Row]] = {
    "numpy": array_statistics,
    "torch": lambda values: tensor_statistics(torch.from_numpy(values)),
    "device": lambda values: by_device(torch.from_numpy(values)),
}

random = np.random.default_rng(0)
NORMAL = random.standard_normal
CASES: dict[str, NDArray[Any]] = {
    "normal": NORMAL(300_001).astype("f4"),
    "mean that nearly cancels": np.concatenate([NORMAL(70_000)] * 2).astype("f4")
    * np.repeat([1, -1], 70_000).astype("f4")
    + np.float32(1e-6),
    "std that nearly cancels": (1000 + 1e-3 * NORMAL(200_000)).astype("f4"),
    "ones but one": np.where(np.arange(100_000) == 5, np.float32(1.0001), np.float32(1)),
    "constant": np.full(70_000, 0.1, "f4"),
    "zeros": np.zeros(70_000, "f4"),
    "denormals": (NORMAL(5_000) * 1e-41).astype("f4"),
    "squares that vanish": (NORMAL(5_000) * 1e-25).astype("f4"),
    "squares that overflow": (NORMAL(5_000) * 1e30).astype("f4"),
    "float64 squares that overflow": NORMAL(5_000) * 1e200,
    "largest": np.array([3e38, -3e38, 3e38, 1.0], "f4"),
    "nan and inf": np.where(
        np.arange(100_000) % 7 == 0,
        np.nan,
        np.where(np.arange(100_000) % 11, NORMAL(100_000), np.inf),
    ).astype("f4"),
    "one nan among many": np.where(np.arange(200_000) == 150_000, np.nan, 2.0).astype("f4"),
    "minus inf": np.array([-np.inf, 1, 2], "f4"),
    "nothing finite": np.array([np.nan, np.inf, -np.inf], "f4"),
    "two": np.array([3.0, -4.0], "f4"),
    "row and a bit": NORMAL(ROW + 1).astype("f4"),
    "whole rows": NORMAL(3 * ROW).astype("f4") - 5,
    "row but a bit": NORMAL(ROW - 1).astype("f4") + 5,
    "whole chunks": NORMAL(2 * CHUNK).astype("f4"),
    "chunk and a bit": NORMAL(CHUNK + 1).astype("f4") + 1,
    "one chunk far from the other": np.repeat([1e4, -1e4], CHUNK).astype("f4") + 0.5,
    "close together, far from zero": (1 + 2e-7 * (np.arange(50_000) % 3)).astype("f4"),
    "two values close together": np.where(np.arange(CHUNK) % 2, 0.1, 0.1005).astype("f4"),
    "tenth in float32": np.full(CHUNK, 0.1, "f4") * np.where(np.arange(CHUNK) % 2, 1, -0.9999),
    "bool": random.random(100_000) < 0.25,
    "int64": random.integers(-(1 << 40), 1 << 40, 100_000),
    "uint8": random.integers(0, 255, 100_000).astype("u1"),
    "int32": random.integers(-(1 << 31), 1 << 31, 100_000).astype("i4"),
    "float16": NORMAL(100_000).astype("f2"),
    "float16 whose squares overflow": (NORMAL(10_000) * 1e4).astype("f2"),
    "float64": NORMAL(100_000),
    "matrix": NORMAL((30, 50, 7)).astype("f4"),
}


def assert_close(found: Row, expected: Row) -> None:
    for name, one, two in zip(STATISTICS_COLUMNS, found, expected, strict=True):
        if math.isnan(two):
            assert math.isnan(one), name
        else:
            # A std of rounding errors (of a constant) has no digits to compare.
            slack = {"std": 1e-12 * expected[9], "mean": MEAN_TOLERANCE * expected[7]}.get(name, 0)
            assert abs(one - two) <= TOLERANCE * abs(two) + slack, f"{name}: {one} != {two}"


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("case", CASES)
def test_against_numpy_in_float64(case: str, implementation: str) -> None:
    assert_close(IMPLEMENTATIONS[implementation](CASES[case]), oracle(CASES[case]))


@pytest.mark.parametrize("value", [2.5, -3.0, 0.0, math.nan, math.inf, -math.inf])
def test_one_number(value: float) -> None:
    expected = oracle(np.array(value, "f4"))
    assert_close(array_statistics(np.array(value, "f4")), expected)
    assert_close(tensor_statistics(torch.tensor(value)), expected)


def test_nothing() -> None:
    for row in (array_statistics(np.zeros((0, 3), "f4")), tensor_statistics(torch.zeros(0, 3))):
        assert row[:3] == (0.0, 0.0, 0.0)
        assert all(math.isnan(number) for number in row[3:])


def test_bfloat16() -> None:
    values = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected = oracle(values.float().numpy())
    assert_close(tensor_statistics(values), expected)
    assert_close(by_device(values), expected)
    shuffled = values.view(100, 1000).t()
    assert_close(tensor_statistics(shuffled), expected)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats(name: str) -> None:
    values = torch.randn(5_000).to(getattr(torch, name))
    assert_close(tensor_statistics(values), oracle(values.float().numpy()))


def test_quantized_tensors_have_those_of_their_values() -> None:
    values = torch.quantize_per_tensor(torch.randn(100), 0.1, 10, torch.quint8)
    assert_close(tensor_statistics(values), oracle(values.dequantize().numpy()))


def test_views_that_are_negated_when_they_are_read() -> None:
    values = torch.randn(50, dtype=torch.cfloat).conj().imag
    assert values.is_neg()
    assert_close(tensor_statistics(values), oracle(values.resolve_neg().numpy()))


def test_tensors_in_any_order_of_memory() -> None:
    tensor = torch.randn(4, 3, 20, 20)
    expected = oracle(tensor.numpy())
    for same in (
        tensor.contiguous(memory_format=torch.channels_last),
        tensor.permute(3, 1, 0, 2),
        tensor.repeat(1, 1, 1, 2)[..., ::2].copy_(tensor),
        torch.nn.Parameter(tensor),
    ):
        assert_close(tensor_statistics(same), expected)
    expanded = torch.randn(5, 1).expand(5, 7)
    assert_close(tensor_statistics(expanded), oracle(expanded.numpy()))


def test_sparse_tensors_count_their_zeros() -> None:
    dense = torch.zeros(50, 4)
    dense[3] = torch.randn(4)
    assert_close(tensor_statistics(dense.to_sparse()), oracle(dense.numpy()))


def test_complex_numbers_and_strings_have_none() -> None:
    assert all(
        math.isnan(number) for number in tensor_statistics(torch.ones(3, dtype=torch.cfloat))
    )
    assert array_statistics(np.array(["a"])) is NO_STATISTICS


SIZES = st.one_of(
    st.integers(2, 40),
    st.builds(
        lambda unit, times, more: max(2, unit * times + more),
        st.sampled_from([1024, 4096, ROW, CHUNK]),
        st.integers(0, 2),
        st.integers(-3, 3),
    ),
)
SPECIAL = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e38, -1e38, 1e-44, 1.0])


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Arrays of any length around the borders, anywhere on the number line, with odd elements."""
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    size = draw(SIZES)
    center = draw(st.sampled_from([0.0, 0.0, 1.0, -1.0, 1e3])) * draw(st.floats(0.5, 2))
    spread = 10.0 ** draw(st.integers(-30, 20))
    values = center + spread * generator.standard_normal(size)
    if draw(st.booleans()):
        values = np.sort(values)
    if draw(st.booleans()):
        values = np.concatenate([values, -values]) + spread * 1e-4
    for _ in range(draw(st.integers(0, 3))):
        values[draw(st.integers(0, values.size - 1))] = draw(SPECIAL)
    with np.errstate(over="ignore"):
        return values.astype(draw(st.sampled_from(["f4", "f4", "f2", "f8"])))


@settings(max_examples=150, deadline=None)
@given(arrays())
def test_any_array_against_numpy_in_float64(values: NDArray[Any]) -> None:
    for implementation in IMPLEMENTATIONS.values():
        assert_close(implementation(values), oracle(values))


@settings(max_examples=30, deadline=None)
@given(st.lists(arrays(), min_size=2, max_size=6))
def test_many_tensors_on_a_device_at_once(values: list[NDArray[Any]]) -> None:
    tensors = [torch.from_numpy(array.astype("f4")) for array in values]
    for tensor, row in zip(tensors, device_statistics(tensors), strict=True):
        assert_close(row, oracle(tensor.numpy()))


def test_tensors_on_a_device_in_several_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hook_layer.pytorch.device_kernels._MAX_ROWS", 3)
    sizes = [1, 5, ROW, ROW + 1, 3 * ROW - 1, 2, 10 * ROW, 7]
    tensors = [torch.randn(size) + position for position, size in enumerate(sizes)]
    for tensor, row in zip(tensors, device_statistics(tensors), strict=True):
        assert_close(row, oracle(tensor.numpy()))


class Syncs(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts what makes the host wait for a device: copies to it, and numbers read of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        waits = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select")
        self.calls += func.overloadpacket.__name__ in waits
        return func(*args, **(kwargs or {}))


def test_a_device_is_not_waited_for_whatever_the_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(size) for size in (3, ROW, ROW + 5, 4 * ROW, 10, 17)]
    tensors += [torch.ones(500), torch.zeros(70), torch.ones(2 * ROW) + 1e-4 * torch.randn(2 * ROW)]
    tensors += [torch.tensor([1.0, math.nan, 3e38, -3e38]), torch.full((9,), math.inf)]
    monkeypatch.setattr(torch.Tensor, "cpu", None, raising=False)
    with Syncs() as syncs:
        started = DeviceStatistics(None)
        started.add(tensors)
    assert syncs.calls == 0
    expected = [oracle(tensor.numpy()) for tensor in tensors]
    for tensor in tensors:
        tensor.fill_(7)  # as an optimiser that steps before the results are there
    for row, right in zip(started.rows(), expected, strict=True):
        assert_close(row, right)


def test_statistics_of_several_calls_leave_a_device_together() -> None:
    batches = DeviceBatches()
    tensors = [torch.full((size,), float(size)) for size in (3, ROW + 1, 2)]
    added = [batches.add(tensors[:2]), batches.add(tensors[2:])]
    assert added[0][0] is added[1][0]
    assert [first for _, first, _ in added] == [0, 2]
    assert batches.send()
    later = batches.add([torch.zeros(4)])
    assert later[0] is not added[0][0]
    assert [row[0] for row in added[0][0].rows()] == [3, ROW + 1, 2]
    assert [row[5] for row in added[0][0].rows()] == [3, ROW + 1, 2]
    assert later[0].rows()[later[1]][0] == 4


def test_a_batch_that_was_read_takes_nothing_more() -> None:
    batches = DeviceBatches()
    batch, row, _ = batches.add([torch.ones(3)])
    assert batch.rows()[row][0] == 3
    other, row, _ = batches.add([torch.ones(5)])
    assert other is not batch
    assert other.rows()[row][0] == 5
    assert len(batch.rows()) == 1


def test_the_largest_numbers_of_float64_on_a_device() -> None:
    largest = np.finfo(np.float64).max
    row = by_device(torch.tensor([-largest, 0.0], dtype=torch.float64))
    assert row[5:8] == (-largest / 2, largest / 2, largest / 2)


def test_rows_of_a_batch_are_in_the_order_of_the_tensors() -> None:
    tensors = [
        torch.ones(3),
        torch.ones(2, dtype=torch.cfloat),
        torch.full((2,), 7),
        torch.zeros(0),
    ]
    rows = torch_statistics(tensors).rows()
    assert rows.shape == (4, len(STATISTICS_COLUMNS))
    np.testing.assert_array_equal(rows[:, 0], [3, np.nan, 2, 0])
    np.testing.assert_array_equal(rows[:, 4], [1, np.nan, 7, np.nan])


def test_where_a_copy_is_made_the_statistics_are_of_the_copy_and_come_later() -> None:
    value = torch.full((5,), 2.0)
    copy = ArraySnapshot(value.numpy().copy())
    batch = torch_statistics([value, value], [copy, None])
    value.fill_(3)
    np.testing.assert_array_equal(batch.rows()[:, 3], [2, 2])
    copy.array()[:] = 9
    np.testing.assert_array_equal(batch.rows()[:, 3], [2, 2], err_msg="computed once")


def test_arrays_may_be_changed_after_their_capture() -> None:
    value = np.full(5, 2.0)
    batch = NumpyBackend().statistics([value], [None])
    value[:] = 3
    assert batch.rows()[0, 3] == 2
