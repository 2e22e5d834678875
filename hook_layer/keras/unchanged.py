"""Adding a hook to each training of a Keras script that has none.

`fit` gets the hook as one more callback, and so do `evaluate` and `predict` of the model that it
trained. Each model that is fitted has a hook of its own, and so is a run of its own. So is each
model that `train_on_batch` trains, where each call is a step.

A loop of the script's own is recognised where `tf.GradientTape.gradient` is asked for the gradients
of variables: that is a step. Its layers are those of the models that are called in the block of the
tape.
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
from hook_layer.keras.batch_loop import KINDS
from hook_layer.keras.creation_lines import remember_lines
from hook_layer.keras.tape_models import TapeModels

__all__ = ["watch_unchanged"]

logger = logging.getLogger("stepwatch")

_MODELS: Final = "_stepwatch_models"
"""Attribute of a tape: the models in its block."""
_METHODS: Final = ("fit", "evaluate", "predict")


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for each training of this process."""
    trainings = _Trainings(source)
    remember_lines()
    for name in _METHODS:
        callbacks = partial(trainings.callbacks, is_training=name == "fit")
        before = replacing(getattr(keras.Model, name), "callbacks", callbacks)
        patch(keras.Model, name, before=before, within=trainings.loops)
    for name, kind in KINDS.items():
        before = partial(trainings.batch_begins, kind)
        after = partial(trainings.batch_ends, kind)
        patch(keras.Model, name, before=before, after=after, within=trainings.loops)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf  # noqa: PLC0415 - not of the other backends

        patch(tf.GradientTape, "__enter__", after=trainings.tape_begins)
        patch(tf.GradientTape, "__exit__", before=trainings.tape_ends)
        patch(keras.Model, "__call__", before=trainings.model_is_called)
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
        self._has_looked = False
        # By the ids of models that `train_on_batch` trains: they may take turns.
        self._of_batches: dict[int, tuple[ref[Any], KerasHook | None]] = {}
        self._tape: TapeModels | None = None  # of the open block
        self._model: ref[Any] | None = None  # None: none, or a loop of the script's own

    def batch_begins(self, kind: str, args: tuple[Any, ...], _: Mapping[str, Any]) -> None:
        """Begin a step of a loop of `train_on_batch`, with a hook if its model needs one."""
        model = args[0]
        if self.loops.depth:
            return
        known = self._of_batches.get(id(model))
        if kind == "train" and (known is None or known[0]() is not model):
            self._begin_training(model)
            alive = {key: of for key, of in self._of_batches.items() if of[0]() is not None}
            self._of_batches = alive | {id(model): (ref(model), self._hook)}
        hook = self._hook_of_batches(model)
        if hook is not None:
            hook.single_batch_begins(model, kind)

    def batch_ends(self, kind: str, _: Any, model: Any, *__: Any, **___: Any) -> None:
        """End a step of a loop of `train_on_batch`."""
        hook = None if self.loops.depth else self._hook_of_batches(model)
        if hook is not None:
            hook.single_batch_ends(model, kind)

    def _hook_of_batches(self, model: Any) -> KerasHook | None:
        known = self._of_batches.get(id(model))
        if known is not None and known[0]() is model:
            return known[1]
        return None if self._is_another(model) else self._hook

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

    def tape_begins(self, _: Any, tape: Any) -> None:
        """Collect tensors of models in the block of a tape, in steps that may be saved."""
        from hook_layer.keras.tape import WatchedTape  # noqa: PLC0415 - imports TensorFlow

        is_wanted = not self._has_looked or (self._hook is not None and self._hook.may_save_next())
        is_known = isinstance(tape, WatchedTape) or self._tape is not None
        if not self.loops.depth and not is_known and (is_wanted or not _is_eager()):
            self._tape = vars(tape)[_MODELS] = TapeModels()

    def tape_ends(self, args: tuple[Any, ...], _: Mapping[str, Any]) -> None:
        """End at the end of the block."""
        found = vars(args[0]).get(_MODELS)
        if found is not None:
            found.close()
            self._tape = None

    def model_is_called(self, args: tuple[Any, ...], _: Mapping[str, Any]) -> None:
        """Collect the tensors of a model that is called in the block of a tape."""
        if self._tape is not None and not self.loops.depth:
            self._tape.watch(args[0])

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
        found = vars(tape).get(_MODELS)
        take_step(self._hook, found, target, _as_list(sources), _as_list(gradients))


def _is_eager() -> bool:
    import tensorflow as tf  # noqa: PLC0415 - not of the other backends

    return bool(tf.executing_eagerly())


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
