"""Tensor types on disk and in numpy, in both directions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import UnsupportedDtypeError

__all__ = ["PLAIN_TAGS", "STRING_TAGS", "array_from_content", "normalized", "tag_of"]

# Tags are those of TensorFlow's DataType enumeration.
_NUMPY_BY_TAG: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    8: np.dtype("<c8"),
    9: np.dtype("<i8"),
    10: np.dtype("?"),
    11: np.dtype([("qint8", "i1")]),
    12: np.dtype([("quint8", "u1")]),
    13: np.dtype([("qint32", "<i4")]),
    15: np.dtype([("qint16", "<i2")]),
    16: np.dtype([("quint16", "<u2")]),
    17: np.dtype("<u2"),
    18: np.dtype("<c16"),
    19: np.dtype("<f2"),
    22: np.dtype("<u4"),
    23: np.dtype("<u8"),
}
_TAG_BY_KIND: Final[dict[tuple[str, int], int]] = {
    (dtype.kind, dtype.itemsize): tag for tag, dtype in _NUMPY_BY_TAG.items() if dtype.kind != "V"
}
# The original stores quint16 and qint32 with the tags of the plain integers.
_TAG_BY_QUANTIZED_FIELD: Final = {
    "qint8": 11,
    "quint8": 12,
    "qint16": 15,
    "quint16": 17,
    "qint32": 3,
}
_BFLOAT16, _FLOAT8_E5M2, _FLOAT8_E4M3FN = 14, 24, 25
_CODES_BY_TAG: Final[dict[int, np.dtype[Any]]] = {
    _BFLOAT16: np.dtype("<u2"),
    _FLOAT8_E5M2: np.dtype("u1"),
    _FLOAT8_E4M3FN: np.dtype("u1"),
}
_WIDENED_NAMES: Final = ("bfloat16", "float8_e5m2", "float8_e4m3fn")
_E4M3FN_EXPONENT_BIAS, _E4M3FN_MANTISSA_BITS = 7, 3

PLAIN_TAGS: Final = {dtype: tag for tag, dtype in _NUMPY_BY_TAG.items() if dtype.kind != "V"}
"""Tags of types that are stored like in memory."""

STRING_TAGS: Final = (0, 7)
"""Strings are stored without a tag (0) by the original, and as DT_STRING by others."""


def normalized(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `value` little-endian and C-contiguous, without a copy if possible.

    bfloat16 and 8-bit floats become float32, which every reader of the format understands.

    Raises:
        UnsupportedDtypeError: The format has no tag for the type.
    """
    if value.dtype.name in _WIDENED_NAMES:
        value = value.astype(np.float32)
    tag_of(value.dtype)
    return np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")


def tag_of(dtype: np.dtype[Any]) -> int:
    """Return the tag of a type in the format.

    Raises:
        UnsupportedDtypeError: The format has no tag for the type.
    """
    if dtype.kind == "V" and dtype.names is not None and len(dtype.names) == 1:
        tag = _TAG_BY_QUANTIZED_FIELD.get(dtype.names[0])
    else:
        tag = _TAG_BY_KIND.get((dtype.kind, dtype.itemsize))
    if tag is None:
        raise UnsupportedDtypeError(
            f"numpy type {dtype} cannot be saved; convert the tensor to a float, integer, "
            "bool, complex or string type first"
        )
    return tag


def array_from_content(
    tag: int, content: memoryview, shape: tuple[int, ...]
) -> npt.NDArray[Any] | None:
    """Return an array over `content` without a copy; None if tag, size and shape disagree.

    bfloat16 and the 8-bit floats have no numpy type and are returned as float32 copies.
    """
    dtype = _CODES_BY_TAG.get(tag) or _NUMPY_BY_TAG.get(tag)
    if dtype is None or _num_elements(shape) * dtype.itemsize != len(content):
        return None
    values = np.frombuffer(content, dtype=dtype)
    try:
        return (_widened(tag, values) if tag in _CODES_BY_TAG else values).reshape(shape)
    except ValueError:  # a length of zero beside lengths that no array can have
        return None


def _widened(tag: int, codes: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    if tag == _BFLOAT16:  # the upper half of a float32
        return (codes.astype(np.uint32) << 16).view(np.float32)
    if tag == _FLOAT8_E5M2:  # the upper half of an IEEE half float
        return (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    values: npt.NDArray[np.float32] = _e4m3fn_table()[codes]
    return values


def _e4m3fn_table() -> npt.NDArray[np.float32]:
    codes = np.arange(256)
    exponent = (codes >> _E4M3FN_MANTISSA_BITS) & 0xF
    fraction = (codes & 0x7) / 8.0
    scale = np.exp2(np.maximum(exponent, 1) - _E4M3FN_EXPONENT_BIAS)
    magnitude = scale * (fraction + (exponent > 0))
    magnitude[(codes & 0x7F) == 0x7F] = np.nan  # noqa: PLR2004 - the only NaN code of each sign
    table: npt.NDArray[np.float32] = np.where(codes & 0x80, -magnitude, magnitude).astype("f4")
    return table


def _num_elements(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
