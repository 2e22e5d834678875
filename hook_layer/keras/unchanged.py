"""Adding a hook to each training of a Keras script that has none.

`fit` gets the hook as one more callback, and so do `evaluate` and `predict` of the model that it
trained. Each model that is fitted has a hook of its own, and so is a run of its own. A loop of the
script's own is recognised where `tf.GradientTape.gradient` is asked for the gradients of variables:
that is a step, of its loss, weights and gradients; layers only show to a script that says which
model it trains (`hook.register_model`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from weakref import ref

import keras

from hook_layer.autopatch.hook_source import HookSource, has_hook
from hook_layer.capture.patched_functions import patch, replacing
from hook_layer.keras import KerasHook

__all__ = ["watch_unchanged"]

logger = logging.getLogger("stepwatch")

_METHODS: Final = ("fit", "evaluate", "predict")


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for each training of this process."""
    trainings = _Trainings(source)
    for name in _METHODS:
        callbacks = partial(trainings.callbacks, is_training=name == "fit")
        before = replacing(getattr(keras.Model, name), "callbacks", callbacks)
        patch(keras.Model, name, before=before, within=trainings.loops)
    patch(keras.Model, "train_on_batch", before=trainings.warn_of_batches)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf  # noqa: PLC0415 - not of the other backends

        patch(tf.GradientTape, "gradient", after=trainings.take_step)
        tf.GradientTape.gradient = tf.autograph.experimental.do_not_convert(
            tf.GradientTape.gradient
        )


class _Loops:
    """The loops of Keras that run just now, one within another."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class _Trainings:
    """The trainings of this process."""

    def __init__(self, source: HookSource) -> None:
        self.loops = _Loops()
        self._source = source
        self._hook: KerasHook | None = None
        self._has_looked = self._warned_of_batches = False
        self._model: ref[Any] | None = None  # None: none, or a loop of the script's own

    def warn_of_batches(self, *_: Any) -> None:
        """Log once that the hook sees nothing of `keras.Model.train_on_batch`."""
        if not self._warned_of_batches and not self.loops.depth:
            self._warned_of_batches = True
            logger.warning(
                "model.train_on_batch is not watched, so nothing is saved; use model.fit"
            )

    def callbacks(self, arguments: Mapping[str, Any], *, is_training: bool) -> Any:
        """Return the callbacks of a loop of Keras, with a hook if it needs one."""
        given = arguments.get("callbacks")
        if isinstance(given, keras.callbacks.CallbackList):
            return given
        callbacks = keras.tree.flatten(given) if given else []
        if has_hook(callbacks):
            self._has_looked = True
            return given
        model = arguments["self"]
        if is_training:
            self._begin_training(model)
        if self._hook is None or self._is_another(model):
            return given
        return [*callbacks, self._hook]

    def _begin_training(self, model: Any) -> None:
        if not self._has_looked or (self._hook is not None and self._is_another(model)):
            self._make_hook()
            self._model = ref(model)

    def _is_another(self, model: Any) -> bool:
        return self._model is None or self._model() is not model

    def _make_hook(self) -> None:
        self._has_looked = True
        self._hook = self._source.make(KerasHook)

    def take_step(
        self, gradients: Any, tape: Any, target: Any, sources: Any, *_: Any, **__: Any
    ) -> None:
        """Take the gradients of a tape for a step of a loop of the script's own."""
        from hook_layer.keras.tape import WatchedTape, is_of_variables, take_step  # noqa: PLC0415

        if self.loops.depth or isinstance(tape, WatchedTape) or not is_of_variables(sources):
            return
        if not self._has_looked or (self._hook is not None and self._model is not None):
            self._make_hook()
            self._model = None
        if self._hook is None:
            return
        take_step(self._hook, target, _as_list(sources), _as_list(gradients))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
