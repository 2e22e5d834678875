"""Elements of torch tensors: whether they can be read, as plain tensors and as numpy arrays.

A tensor subclass may have no memory, or memory that is not its value. So it is asked for a plain
tensor of torch's own class, and the answer is checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

__all__ = [
    "PLAIN_TYPES",
    "SAVED_AS_FLOAT32",
    "WHOLE",
    "UnreadableTensorError",
    "host_array",
    "is_distributed",
    "is_plain",
    "is_uninitialized",
    "own_shard",
    "owns_memory",
    "plain",
    "readable",
    "readable_if_possible",
    "storable",
    "type_name",
]

SAVED_AS_FLOAT32: Final = frozenset(
    {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2}
    | {torch.float8_e5m2fnuz}
)
"""Types that numpy does not have."""
WHOLE: Final = frozenset({Tensor, nn.Parameter})
"""Classes whose tensors own the memory of their elements."""
PLAIN_TYPES: Final = frozenset(
    {torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)
"""Types of real numbers that numpy has."""
_is_transformed: Final = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001
_WITHOUT_DISPATCH: Final = Tensor.__torch_dispatch__
"""A class that inherits it has real memory: torch reads its tensors like any other tensor."""
_WITHOUT_VALUE: Final[Mapping[str, str]] = {
    "torch.masked.maskedtensor.core.MaskedTensor": "its masked elements have no value",
    "torch.nn.attention.bias.CausalBias": "its memory is not initialized",
}
"""Classes of torch with memory that is not their value."""
_CONVERSIONS: Final = ("dequantize", "to_dense")
"""Methods of torch that return the value as a plain tensor, where a class defines its own."""
_MOST_WRAPPERS: Final = 8
"""Maximum number of subclasses around a plain tensor."""
_MOST_CHARACTERS: Final = 200
"""Of an error message of a subclass, in the reason."""


class UnreadableTensorError(ValueError):
    """A tensor has no elements that can be read."""


@cache
def type_name(dtype: torch.dtype) -> str:
    """Return the name of a type, e.g. `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def plain(tensor: Tensor) -> Tensor:
    """Return the value as a dense, detached tensor, without a copy if possible."""
    value = tensor.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.dequantize() if value.is_quantized else value


def host_array(value: Tensor) -> NDArray[Any]:
    """Return the elements of a tensor that `readable` returned, in host memory, without a copy.

    The array must not outlive the tensor, and may be read-only. `Tensor.numpy` would forbid
    resizing the tensor's memory permanently, which FSDP needs.
    """
    resolved = value.resolve_conj().resolve_neg()
    if resolved.dtype == torch.bool:  # not supported by numpy < 1.25
        return np.from_dlpack(resolved.view(torch.uint8)).view(np.bool_)
    array: NDArray[Any] = np.from_dlpack(resolved)
    return array


def storable(tensor: Tensor) -> Tensor:
    """Return a tensor in stored form: dense, of a numpy type, without a copy if possible."""
    is_dense = type(tensor) in WHOLE and tensor.layout is torch.strided
    if is_dense and tensor.dtype in PLAIN_TYPES and not tensor.is_neg():
        return tensor
    value = plain(tensor)
    return value.to(torch.float32) if value.dtype in SAVED_AS_FLOAT32 else value


def own_shard(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor; any other tensor unchanged.

    Unlike operations on a DTensor, this never waits for other ranks.
    """
    if not is_distributed(tensor):
        return tensor
    with torch.no_grad():
        shard: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return shard


def is_distributed(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor."""
    kind: Any = type(tensor)  # Any, because torch.compile does not narrow the type of tensors
    return kind not in WHOLE and hasattr(kind, "to_local") and hasattr(kind, "device_mesh")


def is_uninitialized(tensor: Tensor) -> bool:
    """Return whether a tensor is a parameter or buffer of a lazy module without elements yet."""
    return type(tensor) not in WHOLE and is_lazy(tensor)


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is dense, readable, of torch's own class and of a type of numpy."""
    if type(tensor) not in WHOLE or tensor.dtype not in PLAIN_TYPES:
        return False
    if tensor.is_cpu:
        return tensor.layout is torch.strided and owns_memory(tensor)
    is_dense = tensor.is_cuda and tensor.is_contiguous() and tensor.numel() > 0
    return is_dense and not tensor.is_neg() and owns_memory(tensor)


def owns_memory(tensor: Tensor) -> bool:
    """Return whether a strided tensor of torch's own class, on CPU or CUDA, has all its elements.

    Tensors that torch.func or torch.compile traces have none. A script may free the memory of a
    tensor that it still holds; reading it would end the process.
    """
    if tensor.is_nested or _is_transformed(tensor):
        return False
    if not tensor.data_ptr():
        return tensor.numel() == 0
    num_bytes = tensor.untyped_storage().nbytes()
    return num_bytes >= tensor.nbytes or num_bytes >= _extent(tensor) * tensor.element_size()


def readable(tensor: Tensor) -> Tensor:
    """Return a tensor of torch's own class with the same elements; of a DTensor, this rank's part.

    Raises:
        UnreadableTensorError: It has no elements that can be read.
    """
    value = tensor
    for _ in range(_MOST_WRAPPERS):
        if type(value) in WHOLE:
            break
        value = _converted(value)
    reason = _missing(value)
    if reason is not None:
        raise UnreadableTensorError(reason)
    return value


def readable_if_possible(tensor: Tensor) -> Tensor:
    """Return the result of `readable`, or the tensor itself, which is refused when captured."""
    try:
        return readable(tensor)
    except UnreadableTensorError:
        return tensor


def _missing(tensor: Tensor) -> str | None:
    """Return why a tensor has no elements; None if it has."""
    if type(tensor) not in WHOLE:
        return f"{type(tensor).__name__} does not return a plain tensor"
    if tensor.is_meta:
        return "a tensor on the device `meta` has no values"
    if _is_transformed(tensor):
        return "a tensor inside a transform of torch.func has no values"
    if tensor.is_nested:
        return "a nested tensor has rows of different lengths"
    has_strides = tensor.layout is torch.strided and (tensor.is_cpu or tensor.is_cuda)
    return None if not has_strides or owns_memory(tensor) else "it has no memory of its elements"


def _extent(tensor: Tensor) -> int:
    """Return the number of elements from the start of its memory to its last element."""
    lengths = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.storage_offset() + 1 + sum((n - 1) * stride for n, stride in lengths))


def _converted(tensor: Tensor) -> Tensor:
    """Return the answer of a subclass that is asked for its elements."""
    name = type(tensor).__name__
    try:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            _check_class(tensor)
            # A class may draw random numbers, and the training must not notice.
            with torch.random.fork_rng([tensor.device] if tensor.is_cuda else []):
                return _answer(tensor)
    except UnreadableTensorError:
        raise
    except Exception as error:
        text = str(error).partition("\n")[0][:_MOST_CHARACTERS]
        raise UnreadableTensorError(
            f"{name} does not return its values: {type(error).__name__} {text}".rstrip()
        ) from error


def _check_class(tensor: Tensor) -> None:
    """Refuse a tensor of a class whose elements cannot be read."""
    kind = type(tensor)
    reason = _WITHOUT_VALUE.get(f"{kind.__module__}.{kind.__qualname__}")
    if is_lazy(tensor):
        reason = "it has no values before its module is called"
    elif isinstance(tensor, FakeTensor):
        reason = "it has no values"
    elif tensor.is_nested:
        reason = "its rows have different lengths"
    if reason is not None:
        raise UnreadableTensorError(f"{kind.__name__}: {reason}")


def _answer(tensor: Tensor) -> Tensor:
    kind = type(tensor)
    if kind.__torch_dispatch__ == _WITHOUT_DISPATCH:
        return Tensor.detach(tensor)
    if is_distributed(tensor):
        return own_shard(tensor)
    for name in _CONVERSIONS:
        if inspect.isfunction(inspect.getattr_static(kind, name, None)):  # its own, and not static
            return _of_shape(getattr(tensor, name)(), tensor, name)
    if _holds_several(tensor):
        raise UnreadableTensorError(
            f"{kind.__name__} holds several different tensors of its shape, so its value is unknown"
        )
    return _copied(tensor)


def _of_shape(value: Any, tensor: Tensor, name: str) -> Tensor:
    if isinstance(value, Tensor) and value.shape == _shape(tensor):
        return value
    kind, shape = type(tensor).__name__, getattr(value, "shape", None)
    raise UnreadableTensorError(
        f"{kind}.{name}() returns {type(value).__name__} of shape {shape}, not {_shape(tensor)}"
    )


def _shape(tensor: Tensor) -> torch.Size:
    """Return the shape that torch knows, whatever attributes its class defines."""
    shape: torch.Size = Tensor.shape.__get__(tensor)  # type: ignore[attr-defined]
    return shape


def _holds_several(tensor: Tensor) -> bool:
    """Return whether tensors that could all be the value differ."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return False
    inner = [getattr(tensor, name) for name in flatten()[0]]
    shape, dtype = _shape(tensor), tensor.dtype
    first, *others = [each for each in inner if each.shape == shape and each.dtype == dtype] or [
        None
    ]
    return any(not _are_equal(first, each) for each in others)


def _are_equal(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors are equal; NaN equals NaN."""
    same = torch.equal(first.isnan(), second.isnan())
    return same and torch.equal(first.nan_to_num(), second.nan_to_num())


def _copied(tensor: Tensor) -> Tensor:
    """Return a copy that the class makes into memory of two different contents.

    Elements that the class does not write would differ.
    """
    size, dtype, device = _shape(tensor), tensor.dtype, tensor.device
    first, second = (torch.full(size, fill, dtype=dtype, device=device) for fill in (0, 1))
    first.copy_(tensor)
    second.copy_(tensor)
    if not torch.equal(_bits(first), _bits(second)):
        raise UnreadableTensorError(f"{type(tensor).__name__} does not copy all of its elements")
    return first


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
