"""Adding a hook to each training of a Keras script that has none.

`fit` gets the hook as one more callback, and so do `evaluate` and `predict` of the model that it
trained. Each model that is fitted has a hook of its own, and so is a run of its own. A loop of the
script's own is recognised where `tf.GradientTape.gradient` is asked for the gradients of variables:
that is a step, of its loss, weights and gradients; layers only show to a script that says which
model it trains (`hook.register_model`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final
from weakref import ref

import keras

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.core.hook import BaseHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.inactive_copy import InactiveCopy
from hook_layer.keras import KerasHook
from hook_layer.tracebacks import hide_frame

__all__ = ["watch_unchanged"]

logger = logging.getLogger("stepwatch")

_METHODS: Final = ("fit", "evaluate", "predict")


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for each training of this process."""
    trainings = _Trainings(source)
    for name in _METHODS:
        setattr(keras.Model, name, trainings.with_hook(getattr(keras.Model, name)))
    keras.Model.train_on_batch = trainings.with_warning(keras.Model.train_on_batch)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf  # noqa: PLC0415 - not of the other backends

        called = trainings.with_step(tf.GradientTape.gradient)
        tf.GradientTape.gradient = tf.autograph.experimental.do_not_convert(called)


class _Trainings:
    """The trainings of this process."""

    def __init__(self, source: HookSource) -> None:
        self._source = source
        self._hook: KerasHook | None = None
        self._has_looked = self._warned_of_batches = False
        self._model: ref[Any] | None = None  # None: none, or a loop of the script's own
        self._depth = 0

    def with_hook(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of `keras.Model` that adds a hook to its callbacks."""
        signature = inspect.signature(method)

        @wraps(method)
        def called(model: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(model, *args, **kwargs)
                self._add_hook(method.__name__, bound)
                _, *args = bound.args  # type: ignore[assignment]
                kwargs = bound.kwargs
            except TypeError:
                pass  # the method says what is wrong
            except Exception:
                logger.exception("adding a hook failed; training runs without one")
            self._depth += 1
            try:
                return method(model, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                self._depth -= 1

        return called

    def with_warning(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return `keras.Model.train_on_batch`, which says once that the hook sees none of it."""

        @wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not self._warned_of_batches and not self._depth:
                self._warned_of_batches = True
                logger.warning(
                    "model.train_on_batch is not watched, so nothing is saved; use model.fit"
                )
            try:
                return method(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        return called

    def with_step(self, gradient: Callable[..., Any]) -> Callable[..., Any]:
        """Return `tf.GradientTape.gradient`, as a step of a loop of the script's own."""

        @wraps(gradient)
        def called(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            gradients = gradient(tape, target, sources, *args, **kwargs)
            try:
                self._take_step(tape, target, sources, gradients)
            except TrainingStoppedError:
                raise
            except Exception:
                logger.exception("this step could not be captured; it runs without the hook")
            return gradients

        return called

    def _add_hook(self, name: str, bound: inspect.BoundArguments) -> None:
        given = bound.arguments.get("callbacks")
        if isinstance(given, keras.callbacks.CallbackList):
            return
        callbacks = keras.tree.flatten(given) if given else []
        if any(isinstance(callback, (BaseHook, InactiveCopy)) for callback in callbacks):
            self._has_looked = True
            return
        model = bound.args[0]
        if name == "fit":
            self._begin_training(model)
        if self._hook is not None and not self._is_another(model):
            bound.arguments["callbacks"] = [*callbacks, self._hook]

    def _begin_training(self, model: Any) -> None:
        if not self._has_looked or (self._hook is not None and self._is_another(model)):
            self._make_hook()
            self._model = ref(model)

    def _is_another(self, model: Any) -> bool:
        return self._model is None or self._model() is not model

    def _make_hook(self) -> None:
        self._has_looked = True
        self._hook = self._source.make(KerasHook)

    def _take_step(self, tape: Any, target: Any, sources: Any, gradients: Any) -> None:
        from hook_layer.keras.tape import WatchedTape, is_of_variables, take_step  # noqa: PLC0415

        if self._depth or isinstance(tape, WatchedTape) or not is_of_variables(sources):
            return
        if not self._has_looked or (self._hook is not None and self._model is not None):
            self._make_hook()
            self._model = None
        if self._hook is None:
            return
        take_step(self._hook, target, _as_list(sources), _as_list(gradients))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
