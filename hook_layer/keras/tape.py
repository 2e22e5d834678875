"""Watches a script's own training loop around `tf.GradientTape`.

In a `tf.function` the graph asks the hook in each step whether anything is due, and brings the
tensors only then. XLA can do neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_util  # the one way to ask for XLA

from hook_layer.guard import guarded
from hook_layer.keras.events import KerasEvents
from hook_layer.keras.names import ModelNames, gradient_name, variable_tail
from hook_layer.keras.step_tensors import StepTensors
from hook_layer.keras.tape_models import TapeModels
from hook_layer.keras.watch import WatchedModel

__all__ = ["WatchedTape", "is_of_variables", "take_step", "wrapped"]


class WatchedTape(tf.GradientTape):  # type: ignore[misc]  # untyped
    """A tape that reports what is recorded; `wrapped` makes one of any tape."""

    _stepwatch: _Recording

    def __enter__(self) -> Any:
        self._stepwatch.begins()
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        self._stepwatch.ends()
        super().__exit__(*exception)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Return gradients, as `tf.GradientTape.gradient` does."""
        gradients = super().gradient(target, sources, *args, **kwargs)
        self._stepwatch.is_read(target, sources, gradients)
        return gradients


def wrapped(tape: Any, listener: KerasEvents, model: Any) -> Any:
    """Make a tape report what it records, and return it."""
    if type(tape) is tf.GradientTape:
        tape.__class__ = WatchedTape
        models = [] if model is None else [model]
        tape._stepwatch = _Recording(listener, models)  # noqa: SLF001 - ours
    return tape


def is_of_variables(sources: Any) -> bool:
    """Return whether gradients are those of variables that are trained."""
    flat = keras.tree.flatten(sources)
    return bool(flat) and all(map(_is_variable, flat))


def take_step(
    listener: KerasEvents, found: TapeModels | None, target: Any, sources: Any, gradients: Any
) -> None:
    """Take gradients of a tape that was not wrapped for a step.

    Args:
        listener: The hook.
        found: The models in its block, and their tensors.
        target: What the tape differentiates.
        sources: The variables.
        gradients: Their gradients.
    """
    found = found or TapeModels()
    recording = _Recording(listener, found.models)
    recording.begins(found.tensors)
    recording.is_read(target, sources, gradients)


class _Recording:
    """What one tape records of models."""

    def __init__(self, listener: KerasEvents, models: Sequence[Any]) -> None:
        self.failures = listener.failures
        self.stopwatch = listener.stopwatch
        self.state = listener.state
        self._listener = ref(listener)
        self._models = models
        self._tensors = StepTensors()
        self._watching: AbstractContextManager[None] | None = None
        self._due: Any = False

    @guarded("tapes")
    def begins(self, seen: StepTensors | None = None) -> None:
        """Begin a step, or its trace, whose tensors are known already or will be seen."""
        listener = self._listener()
        if listener is None:
            return
        self._tensors, self._due = seen or StepTensors(), False
        if tf.executing_eagerly():
            self._due = listener.tape_begins(self._models)
            self._watch(listener.model_capture.is_due if self._due and seen is None else None)
        elif _is_in_xla():
            listener.state.warn_once("XLA compiles this loop: nothing of it is saved")
        else:
            for model in self._models:
                listener.model_capture.names_of(model)
            self._due = tf.numpy_function(_asking(self._listener), [], tf.bool)
            self._watch(listener.model_capture.wants if seen is None else None)

    def ends(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.__exit__(None, None, None)

    @guarded("tapes")
    def is_read(self, target: Any, sources: Any, gradients: Any) -> None:
        listener = self._listener()
        if listener is None or self._due is False:
            return
        variables, found = keras.tree.flatten(sources), keras.tree.flatten(gradients)
        pairs = [pair for pair in zip(variables, found, strict=False) if _is_variable(pair[0])]
        if not pairs:  # a penalty, a map of what matters: no step of training
            listener.state.warn_once(
                "gradients are saved for variables only, not for other tensors"
            )
            return
        named = self._tensors.named()
        if not isinstance(target, (list, tuple, dict)) and target.shape.rank == 0:
            named["loss"] = target
        names = [ModelNames(model) for model in self._models]
        for variable, gradient in pairs:
            weight, name = _names_of(variable, names)
            named[weight] = variable
            if gradient is not None:
                named[name] = gradient
        if tf.executing_eagerly():
            listener.tape_is_read(named)
        else:
            self._bring(named)

    def _bring(self, named: Mapping[str, Any]) -> None:
        """Let the graph bring tensors where they are due."""
        graph = tf.compat.v1.get_default_graph()
        listener = self._listener()
        wanted = {
            name: tensor
            for name, tensor in named.items()
            if listener is not None
            and listener.model_capture.wants(name)
            and getattr(tensor, "graph", graph) is graph
        }
        bring = _bringing(self._listener, list(wanted))

        def due() -> Any:
            values = [tf.convert_to_tensor(tensor) for tensor in wanted.values()]
            with tf.control_dependencies([tf.py_function(bring, values, [])]):
                return tf.zeros([])

        tf.cond(self._due, due, lambda: tf.zeros([]))

    def _watch(self, wants: Callable[[str], bool] | None) -> None:
        if wants is None or not self._models:
            return
        watching = WatchedModel(self._models[0], wants, self).watching(with_inputs=True)
        watching.__enter__()
        self._watching = watching

    # Callbacks of `WatchedModel` -----------------------------------------------------------------

    def take(self, prefix: str, tensors: Any) -> None:
        for tensor in tensors:
            self._tensors.add(prefix, tensor)

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Leave them: the tape has them."""

    def before_update(self) -> None:
        """Nothing to do: variables are captured with the gradients."""


def _is_variable(source: Any) -> bool:
    return isinstance(source, (keras.Variable, tf.Variable))


def _names_of(variable: Any, names: Sequence[ModelNames]) -> tuple[str, str]:
    for known in names:
        gradient = known.gradients.get(id(variable))
        if gradient is not None:
            weight = next(name for name, v in known.weights.items() if v is variable)
            return weight, gradient
    tail = variable_tail(variable)
    layer = tail.split("/")[0]
    return f"{layer}/weights/{tail}:0", gradient_name(tail)


def _asking(listener: Any) -> Callable[[], Any]:
    def ask() -> Any:
        known = listener()
        return np.bool_(known is not None and known.tape_begins())

    return ask


def _bringing(listener: Any, names: list[str]) -> Callable[..., None]:
    def bring(*tensors: Any) -> None:
        known = listener()
        if known is not None:
            known.tape_is_read(dict(zip(names, tensors, strict=True)))

    return bring


def _is_in_xla() -> bool:
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))
