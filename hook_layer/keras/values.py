"""Values of Keras's backends as numpy arrays that nobody else changes."""

from __future__ import annotations

from typing import Any, Final

import keras
import numpy as np

from hook_layer.capture import OwnedArray

__all__ = ["host_array"]

_WIDENED: Final = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _is_of_keras(value: Any) -> bool:
    """Return whether a value is a tensor or variable of the backend."""
    return isinstance(value, keras.Variable) or bool(keras.ops.is_tensor(value))


def host_array(value: Any) -> OwnedArray:
    """Return a copy of a value.

    Args:
        value: A tensor or variable of the backend, or what numpy makes an array of.

    Raises:
        Exception: It has no value that can be read, as tensors within a graph have none; of the
            type that the backend gives.
    """
    array = np.array(keras.ops.convert_to_numpy(value) if _is_of_keras(value) else value)
    name = array.dtype.name
    return OwnedArray(array.astype(np.float32) if name in _WIDENED else array, name)
