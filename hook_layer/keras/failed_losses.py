"""Computes what a loss gets that fails before it has values.

Keras checks shapes before the first step with JAX and PyTorch, and in the graph of the first step
with TensorFlow. Where a loss fails there, its batch is computed once more, up to the loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from types import FrameType
from typing import Any, Final

import keras

from hook_layer.capture.watched_functions import WatchedFunction
from hook_layer.keras.step_tensors import StepTensors
from hook_layer.keras.watch import WatchedModel
from hook_layer.process.tracebacks import hide_frame

__all__ = ["FAILED_BUILDS", "batch_of_build", "kind_of_loop", "tensors_up_to_loss"]

_KINDS: Final = {"fit": "train", "evaluate": "test"}
"""Loops of a model with callbacks, and the kind of their steps."""


class _FailedBuilds(WatchedFunction):
    """Reports each call that raises an exception, and no other."""

    def _wrapped(
        self, original: Callable[..., Any], report: Callable[..., None]
    ) -> Callable[..., Any]:
        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except Exception as error:
                hide_frame(error)
                report((args[0], [*args[1:], *kwargs.values()]), None)
                raise

        return wrapper


FAILED_BUILDS: Final = _FailedBuilds(keras.Model, "_symbolic_build")
"""Builds of models from a batch of no values, before the first step."""


def kind_of_loop(model: Any, hook: Any) -> str | None:
    """Return the kind of the loop of a model that is running with a hook as a callback."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and cheap
    while frame is not None:
        name, known = frame.f_code.co_name, frame.f_locals
        if name in _KINDS and known.get("self") is model:
            callbacks = keras.tree.flatten(known.get("callbacks"))
            return _KINDS[name] if any(each is hook for each in callbacks) else None
        frame = frame.f_back
    return None


def batch_of_build(given: Sequence[Any]) -> Any:
    """Return the batch that a build is given, or the next one of an iterator that it is given."""
    found = next(each for each in given if each is not None)
    if isinstance(found, (tuple, list)):
        return found
    _, _, batches = next(iter(found))
    return batches[0] if isinstance(batches, (tuple, list)) else next(batches)


def tensors_up_to_loss(model: Any, batch: Any, wants: Callable[[str], bool]) -> Mapping[str, Any]:
    """Return the tensors of a forward pass and of the loss, which may fail; nothing is updated."""
    sink = _Sink()
    watched = WatchedModel(model, wants, sink)
    watched.take_batch(batch)
    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
    with suppress(Exception), watched.watching():
        outputs = model(inputs)
        model.compute_loss(inputs, targets, outputs, weights)
    return sink.tensors.named()


class _Sink:
    """Keeps the tensors of one step."""

    def __init__(self) -> None:
        self.tensors = StepTensors()

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            self.tensors.add(prefix, tensor)

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Do nothing: there is no backward pass."""

    def before_update(self) -> None:
        """Do nothing: no variable changes."""
