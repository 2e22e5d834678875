"""Values are read only from memory that is the tensor's own, of every kind of tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from hook_layer.capture.captured_step import CapturedTensor
from hook_layer.pytorch.tensor_elements import UnreadableTensorError, readable
from tests.hook_layer.pytorch.open_step import OpenStep

_INTERNAL = "torch.testing._internal"
VALUES = torch.arange(12.0).view(4, 3) - 5


def of_torch(module: str, name: str) -> Any:
    """Return a class or function of torch; skip the test where this version lacks it."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        pytest.skip(f"torch {torch.__version__} has no {module}.{name}")


def two_tensor(first: Tensor, second: Tensor) -> Any:
    return of_torch(f"{_INTERNAL}.two_tensor", "TwoTensor")(first, second)


class OwnMemory(Tensor):
    """A subclass with memory of its own, as of torchvision."""


class Wrapper(Tensor):
    """A subclass without memory, around another tensor."""

    wrapped: Tensor

    @staticmethod
    def __new__(cls: Any, inner: Tensor, shape: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_wrapper_subclass(
            cls, shape or inner.shape, dtype=dtype or inner.dtype, device=inner.device
        )

    def __init__(self, inner: Tensor, *_: Any, **__: Any) -> None:
        self.wrapped = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raw = [each.wrapped if isinstance(each, Wrapper) else each for each in args]
        return func(*raw, **(kwargs or {}))


class Quantized(Wrapper):
    """8-bit numbers that claim to be float32, with a scale."""

    def dequantize(self) -> Tensor:
        return self.wrapped.float() * 0.5


class StaticDequantize(Wrapper):
    @staticmethod
    def dequantize(value: Tensor, scale: Tensor) -> Tensor:
        return value * scale


class NoisyCopy(Wrapper):
    """A subclass that draws random numbers when it is asked."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch.rand(3)
        return super().__torch_dispatch__(func, types, args, kwargs)


class NeverWrites(Wrapper):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0]


class Refuses(Wrapper):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"no {func}\nat all")


class OtherShape(Wrapper):
    def dequantize(self) -> Tensor:
        return self.wrapped[:2]


class ClaimsShape(OwnMemory):
    shape = torch.Size([1000, 1000])


class Endless(Wrapper):
    def dequantize(self) -> Tensor:
        return self


class OtherToLocal(Wrapper):
    def to_local(self) -> None:
        raise RuntimeError("no mesh")


def functional() -> Any:
    module = "torch._subclasses.functional_tensor"
    with of_torch(module, "FunctionalTensorMode")():
        return of_torch(module, "FunctionalTensor").to_functional(VALUES)


def freed() -> Tensor:
    tensor = VALUES.clone()[1:]
    tensor.untyped_storage().resize_(0)
    return tensor


def cut_short() -> Tensor:
    tensor = VALUES.clone()
    tensor.untyped_storage().resize_(8)
    return tensor


READ: dict[str, Callable[[], Any]] = {
    "Parameter": lambda: nn.Parameter(VALUES),
    "Buffer": lambda: nn.Buffer(VALUES) if hasattr(nn, "Buffer") else VALUES,
    "FlatParameter": lambda: of_torch("torch.distributed.fsdp._flat_param", "FlatParameter")(
        VALUES
    ),
    "own memory": lambda: VALUES.as_subclass(OwnMemory),
    "shape attribute that lies": lambda: VALUES.as_subclass(ClaimsShape),
    "parameter of own memory": lambda: nn.Parameter(VALUES.as_subclass(OwnMemory)),
    "ExpandedWeight": lambda: of_torch(
        "torch.nn.utils._expanded_weights.expanded_weights_impl", "ExpandedWeight"
    )(nn.Parameter(VALUES), 4, "sum"),
    "NonWrapperTensor": lambda: of_torch(f"{_INTERNAL}.common_subclass", "NonWrapperTensor")(
        VALUES
    ),
    "RedispatchTensor": lambda: of_torch(f"{_INTERNAL}.common_subclass", "RedispatchTensor")(
        VALUES
    ),
    "SubclassWithTensorFactory": lambda: of_torch(
        f"{_INTERNAL}.common_subclass", "SubclassWithTensorFactory"
    )(VALUES),
    "WrapperTensorWithCustomSizes": lambda: of_torch(
        f"{_INTERNAL}.common_subclass", "WrapperTensorWithCustomSizes"
    )(VALUES),
    "WrapperTensorWithCustomStrides": lambda: of_torch(
        f"{_INTERNAL}.common_subclass", "WrapperTensorWithCustomStrides"
    )(VALUES),
    "SparseTensor": lambda: of_torch(f"{_INTERNAL}.common_subclass", "SparseTensor").from_dense(
        VALUES
    ),
    "ConstantExtraMetadataTensor": lambda: of_torch(
        f"{_INTERNAL}.custom_tensor", "ConstantExtraMetadataTensor"
    )(VALUES),
    "CustomTensorPlainOut": lambda: of_torch(f"{_INTERNAL}.custom_tensor", "CustomTensorPlainOut")(
        VALUES, VALUES
    ),
    "LoggingTensor": lambda: of_torch(f"{_INTERNAL}.logging_tensor", "LoggingTensor")(VALUES),
    "LoggingTensorReentrant": lambda: of_torch(
        f"{_INTERNAL}.logging_tensor", "LoggingTensorReentrant"
    )(VALUES),
    "WrapperSubclass": lambda: of_torch(f"{_INTERNAL}.subclasses", "WrapperSubclass")(VALUES),
    "AsyncCollectiveTensor": lambda: of_torch(
        "torch.distributed._functional_collectives", "AsyncCollectiveTensor"
    )(VALUES),
    "TwoTensor": lambda: two_tensor(VALUES, VALUES.clone()),
    "parameter of a wrapper": lambda: nn.Parameter(two_tensor(VALUES, VALUES.clone())),
    "wrapper": lambda: Wrapper(VALUES),
    "wrapper of a wrapper": lambda: Wrapper(Wrapper(VALUES)),
    "quantized wrapper": lambda: Quantized((VALUES * 2).to(torch.int8), dtype=torch.float32),
    "another to_local": lambda: OtherToLocal(VALUES),
    "static dequantize": lambda: StaticDequantize(VALUES),
    "random numbers": lambda: NoisyCopy(VALUES),
    "sparse": VALUES.to_sparse,
    "compressed": VALUES.to_sparse_csr,
    "quantized": lambda: torch.quantize_per_tensor(VALUES, 1.0, 10, torch.quint8),
    "quantized by channel": lambda: torch.quantize_per_channel(
        VALUES, torch.ones(4), torch.full((4,), 10), 0, torch.quint8
    ),
    "view": lambda: torch.cat([VALUES, VALUES])[4:],
    "transposed": lambda: VALUES.t().contiguous().t(),
    "double": VALUES.double,
    "bfloat16": VALUES.bfloat16,
}
"""Tensors with the elements `VALUES`."""
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "FakeTensor": (lambda: FakeTensorMode().from_tensor(VALUES), "has no values"),
    "FunctionalTensor": (functional, "does not return a plain tensor"),
    "functional": (lambda: torch._to_functional_tensor(VALUES), "no memory"),
    "MaskedTensor": (
        lambda: of_torch("torch.masked", "masked_tensor")(VALUES, VALUES > 0),
        "no value",
    ),
    "CausalBias": (
        lambda: of_torch("torch.nn.attention.bias", "causal_upper_left")(4, 3),
        "not initialized",
    ),
    "NestedTensor": (
        lambda: of_torch("torch.nested._internal.nested_tensor", "jagged_from_list")(
            [VALUES, VALUES[:2]], None
        )[0],
        "different lengths",
    ),
    "nested": (lambda: torch.nested.nested_tensor([VALUES, VALUES[:2]]), "different lengths"),
    "LocalTensor": (
        lambda: of_torch("torch.distributed._local_tensor", "LocalTensor")(
            {0: VALUES, 1: VALUES + 1}
        ),
        "several different tensors",
    ),
    "TwoTensor": (lambda: two_tensor(VALUES, VALUES + 1), "several different tensors"),
    "LocalShardsWrapper": (
        lambda: of_torch("torch.distributed.tensor._shards_wrapper", "LocalShardsWrapper")(
            [VALUES], [(0, 0)]
        ),
        "not supported",
    ),
    "SparseSemiStructuredTensor": (
        lambda: of_torch("torch.sparse", "SparseSemiStructuredTensorCUTLASS")(
            torch.Size([4, 3]), VALUES, None, None, None, None
        ),
        "must not be None",
    ),
    "meta": (lambda: VALUES.to("meta"), "`meta`"),
    "UninitializedParameter": (nn.UninitializedParameter, "before its module is called"),
    "UninitializedBuffer": (nn.UninitializedBuffer, "before its module is called"),
    "freed": (freed, "no memory"),
    "cut short": (cut_short, "no memory"),
    "larger than its inner tensor": (lambda: Wrapper(VALUES, (1000, 7)), "RuntimeError"),
    "never writes": (lambda: NeverWrites(VALUES), "does not copy all of its elements"),
    "refuses": (lambda: Refuses(VALUES), "NotImplementedError no aten.copy_.default"),
    "other shape": (lambda: OtherShape(VALUES), r"of shape torch.Size\(\[2, 3\]\)"),
    "endless": (lambda: Endless(VALUES), "does not return a plain tensor"),
}
"""Tensors without elements that can be read, and the reason."""


def captured(tensors: dict[str, Tensor]) -> tuple[dict[str, CapturedTensor], OpenStep]:
    step = OpenStep()
    step.capture(**tensors)
    record = step.recorder.record
    assert record is not None
    return record.tensors, step


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", READ)
def test_statistics_and_values_are_those_of_the_tensor(kind: str) -> None:
    tensor = READ[kind]()
    state = torch.random.get_rng_state()
    found, step = captured({"odd": tensor, "plain": torch.ones(2)})
    assert not step.failures.not_captured
    assert torch.equal(state, torch.random.get_rng_state())
    odd = found["odd"]
    assert odd.shape == (4, 3)
    assert odd.raw is not None
    assert odd.statistics is not None
    np.testing.assert_array_equal(odd.raw.array(), VALUES.numpy())
    row = odd.statistics.rows()[odd.row]
    assert row[:6].tolist() == [12, 0, 0, -5, 6, 0.5]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
def test_a_tensor_without_readable_elements_is_left_out_with_the_reason(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, reason = REFUSED[kind]
    tensor = make()
    found, step = captured({"odd": tensor, "plain": torch.ones(2)})
    assert list(found) == ["plain"]
    with pytest.raises(UnreadableTensorError, match=reason) as error:
        readable(tensor)
    assert step.failures.not_captured == {"odd": str(error.value)}
    assert not step.failures.errors
    step.capture(odd=tensor)
    assert len(caplog.records) == 1
    assert str(error.value) in caplog.text


def test_values_of_a_wrapper_are_those_at_the_time_of_the_capture() -> None:
    inner = torch.ones(3)
    found, _ = captured({"odd": Wrapper(inner)})
    inner.zero_()
    raw = found["odd"].raw
    assert raw is not None
    assert raw.array().tolist() == [1, 1, 1]


def test_a_diagonal_is_read_as_the_matrix_that_it_stands_for() -> None:
    diagonal = torch.tensor([1.0, 2.0, 3.0])
    found, _ = captured(
        {"odd": of_torch(f"{_INTERNAL}.common_subclass", "DiagTensorBelow")(diagonal)}
    )
    raw = found["odd"].raw
    assert raw is not None
    np.testing.assert_array_equal(raw.array(), diagonal.diag().numpy())


def test_tensors_within_a_transform_are_left_out_with_the_reason() -> None:
    step = OpenStep()

    def captured(name: str, value: Tensor) -> Tensor:
        step.capture(**{name: value})
        return value

    torch.func.vmap(partial(captured, "row"))(torch.ones(2, 3))
    torch.func.functionalize(partial(captured, "rows"))(torch.ones(2, 3))
    assert step.values() == {}
    assert set(step.failures.not_captured) == {"row", "rows"}


def test_wrapped_tensors_that_are_nan_are_read() -> None:
    values = VALUES.clone()
    values[1, 2] = torch.nan
    plain = readable(two_tensor(values, values.clone()))
    assert torch.equal(plain.isnan(), values.isnan())
    assert torch.equal(plain.nan_to_num(), values.nan_to_num())
