"""Tensors that are captured together are stored as if each were captured alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hook_layer.capture.captured_step import CapturedTensor
from hook_layer.configuration.collection_manager import SummaryPlan, TensorPlan
from hook_layer.pytorch.copies import SMALL_BYTES
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.tensor_source import TorchBatch, join
from tests.hook_layer.device_rows import torch_statistics

STATISTICS = TensorPlan(raw=False)
VALUE = TensorPlan(raw=True, is_of_parameter=True)


def joined(
    tensors: Mapping[str, Tensor], plan: TensorPlan = STATISTICS, *, has_values: bool = True
) -> tuple[list[Any], list[str]]:
    """Return the groups of tensors, and the names of the others."""
    planned = {name: (tensor, plan) for name, tensor in tensors.items()}
    groups, others = join(planned, has_values=has_values)
    return groups, list(others)


def captured(group: Any) -> dict[str, CapturedTensor]:
    return TorchBatch(group, DeviceBatches()).tensors()


def value_of(tensor: CapturedTensor) -> Any:
    assert tensor.raw is not None
    return tensor.raw.array()


def statistics_of(tensor: CapturedTensor) -> Any:
    assert tensor.statistics is not None
    return tensor.statistics.rows()[tensor.row]


def odd_tensors() -> dict[str, Tensor]:
    """Return tensors of many shapes, orders of memory and elements."""
    torch.manual_seed(0)
    return {
        "matrix": torch.randn(30, 50),
        "parameter": nn.Parameter(torch.randn(7) + 3),
        "transposed": torch.randn(4, 6).t(),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "expanded": torch.randn(5, 1).expand(5, 7),
        "number": torch.tensor(-2.5),
        "empty": torch.zeros(0, 3),
        "not a number": torch.tensor([math.nan, math.inf, -math.inf, 3.0]),
        "huge": torch.tensor([3e38, -3e38]),
        "double": torch.randn(9, dtype=torch.float64),
        "half": torch.randn(9).half(),
        "bool": torch.tensor([True, False, True]),
        "integers": torch.arange(12).view(3, 4),
        "last": torch.ones(2),
    }


def test_values_types_and_shapes_are_those_of_the_tensors() -> None:
    tensors = odd_tensors()
    batches, others = joined(tensors, VALUE)
    assert others == []
    assert len(batches) == 5, "one for each type"
    found = {name: one for batch in batches for name, one in captured(batch).items()}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == str(tensor.dtype).removeprefix("torch.")
        assert found[name].is_of_parameter
        np.testing.assert_array_equal(value_of(found[name]), tensor.detach().numpy(), strict=True)


def test_statistics_are_those_of_each_tensor_alone() -> None:
    tensors = odd_tensors()
    batches, _ = joined(tensors)
    for batch in batches:
        for name, tensor in captured(batch).items():
            alone = torch_statistics([tensors[name]]).rows()[0]
            np.testing.assert_allclose(statistics_of(tensor), alone, rtol=1e-6, err_msg=name)
            assert tensor.raw is None


def test_tensors_keep_their_order() -> None:
    names = [f"weight{number}" for number in range(20)]
    (batch,), _ = joined({name: torch.full((2,), float(n)) for n, name in enumerate(names)}, VALUE)
    assert len(batch) == 20
    found = captured(batch)
    assert list(found) == names
    assert [value_of(tensor)[0] for tensor in found.values()] == [*range(20)]
    assert [statistics_of(tensor)[3] for tensor in found.values()] == [*range(20)]


def test_values_are_stored_of_those_tensors_that_want_them_and_statistics_of_all() -> None:
    one, two = torch.ones(3), torch.full((2,), 2.0)
    (batch,), _ = join({"weight": (one, VALUE), "output": (two, STATISTICS)}, has_values=True)
    found = captured(batch)
    assert value_of(found["weight"]).tolist() == [1, 1, 1]
    assert found["output"].raw is None
    assert not found["output"].is_of_parameter
    assert [statistics_of(tensor)[3] for tensor in found.values()] == [1, 2]


def test_a_tensor_of_several_names_is_copied_once() -> None:
    tied, other = torch.ones(100), torch.zeros(100)
    (group,), _ = joined({"embedding": tied, "other": other, "head": tied}, VALUE)
    batch = TorchBatch(group, DeviceBatches())
    found = batch.tensors()
    assert batch.nbytes == tied.nbytes + other.nbytes
    assert list(found) == ["embedding", "other", "head"]
    assert [value_of(tensor).sum() for tensor in found.values()] == [100, 0, 100]
    assert [statistics_of(tensor)[3] for tensor in found.values()] == [1, 0, 1]


def test_values_are_those_at_the_time_of_the_capture() -> None:
    for tensors in ({"one": torch.ones(3)}, {"one": torch.ones(3), "two": torch.ones(3)}):
        (group,), _ = joined(tensors, VALUE)
        batch = TorchBatch(group, DeviceBatches())
        for tensor in tensors.values():
            tensor.zero_()
        for found in batch.tensors().values():
            assert value_of(found).tolist() == [1, 1, 1]
            assert statistics_of(found)[3] == 1


class Subclass(Tensor):
    """A tensor that may compute its elements in its own way."""


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.ones(3).as_subclass(Subclass),
        torch.ones(3, dtype=torch.cfloat),
        torch.ones(3, dtype=torch.cfloat).conj(),
        torch.ones(3, dtype=torch.bfloat16),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        torch.ones(SMALL_BYTES // 4),
    ],
    ids=["sparse", "subclass", "complex", "conj", "bfloat16", "quantized", "large"],
)
@pytest.mark.parametrize("plan", [STATISTICS, VALUE], ids=["statistics", "value"])
def test_other_kinds_of_tensors_are_captured_one_by_one(tensor: Tensor, plan: TensorPlan) -> None:
    batches, others = joined({"odd": tensor, "plain": torch.ones(2)}, plan)
    assert others == ["odd"]
    assert [list(captured(batch)) for batch in batches] == [["plain"]]


def test_a_view_that_torch_negates_when_it_is_read_has_its_own_values() -> None:
    negated = torch.full((3,), 2j).conj().imag
    assert negated.is_neg()
    (batch,), _ = joined({"negated": negated}, VALUE)
    assert value_of(captured(batch)["negated"]).tolist() == [-2, -2, -2]


@pytest.mark.parametrize(
    "plan",
    [
        TensorPlan(raw=True),
        TensorPlan(raw=True, is_of_parameter=True, raw_max_elements=5),
        TensorPlan(raw=True, is_of_parameter=True, reductions=(("mean", False),)),
        TensorPlan(raw=False, reductions=(("mean", False),)),
        TensorPlan(raw=False, summaries=SummaryPlan(scalar=True)),
    ],
    ids=["output", "first rows", "value and reductions", "reductions", "summaries"],
)
def test_tensors_of_which_more_or_less_is_stored_are_captured_one_by_one(plan: TensorPlan) -> None:
    assert joined({"one": torch.ones(3)}, plan) == ([], ["one"])


def test_where_values_are_limited_only_statistics_are_captured_together() -> None:
    assert joined({"one": torch.ones(3)}, VALUE, has_values=False) == ([], ["one"])
    (batch,), others = joined({"one": torch.ones(3)}, has_values=False)
    assert (len(batch), others) == (1, [])


def test_tensors_beyond_the_bytes_of_one_capture_are_captured_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hook_layer.pytorch.tensor_source._MOST_COPIED_BYTES", 100)
    (batch,), others = joined({name: torch.ones(10) for name in "abc"})
    assert (list(captured(batch)), others) == (["a", "b"], ["c"])


def test_a_large_tensor_takes_no_room_of_the_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hook_layer.pytorch.tensor_source._MOST_COPIED_BYTES", SMALL_BYTES)
    (batch,), others = joined({"embedding": torch.ones(SMALL_BYTES), "bias": torch.ones(10)})
    assert (list(captured(batch)), others) == (["bias"], ["embedding"])
