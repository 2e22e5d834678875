"""Loops of a script's own, and what else the original's hook for TensorFlow is told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import keras

from hook_layer.collections import CollectionKeys
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.keras.events import KerasEvents
from hook_layer.keras.names import gradient_name, variable_tail

__all__ = ["KerasLoops"]

logger = logging.getLogger("stepwatch")

_KNOWN_LOGS: Final = {
    "inputs": "inputs",
    "labels": "labels",
    "model_input": "inputs",
    "predictions": "predictions",
    "x": "inputs",
    "y": "labels",
    "y_pred": "predictions",
}


class KerasLoops(KerasEvents):
    """A hook for loops around GradientTape, too."""

    _registered: Any = None

    def register_model(self, model: Any) -> None:
        """Name the model of a loop of your own, whose layers must be seen.

        Raises:
            HookConfigurationError: It is no Keras model.
        """
        if not isinstance(model, keras.Model):
            raise HookConfigurationError(f"model={model!r:.200} must be a keras.Model")
        self._registered = model

    def wrap_tape(self, tape: Any) -> Any:
        """Watch a `tf.GradientTape` of a loop of your own; see `hook_layer.keras.tape`.

        Args:
            tape: The tape, before its `with` block.

        Returns:
            The same tape.

        Raises:
            HookConfigurationError: The backend is not TensorFlow.
        """
        if keras.backend.backend() != "tensorflow":
            raise HookConfigurationError(
                "wrap_tape needs the backend tensorflow, this is "
                f"{keras.backend.backend()}; model.fit() needs no wrap_tape"
            )
        if not self.is_active:
            return tape
        from hook_layer.keras.tape import wrapped  # noqa: PLC0415 - imports TensorFlow

        return wrapped(tape, self, self._registered)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Return the optimiser as it is: gradients and its variables are found without."""
        return optimizer

    def set_gradients(
        self,
        gradients: Sequence[Any] | None = None,
        gradients_and_variables: Iterable[tuple[Any, Any]] | None = None,
    ) -> None:
        """Capture gradients that a loop of your own computed, if they are due.

        Args:
            gradients: One for each trainable variable of the registered model, in their order.
            gradients_and_variables: Pairs, instead of it.

        Raises:
            HookConfigurationError: Neither is given, or the first without a registered model.
        """
        pairs = gradients_and_variables
        if pairs is None:
            if gradients is None or self._registered is None:
                raise HookConfigurationError(
                    "set_gradients needs gradients_and_variables=[(gradient, variable), ...], or "
                    "gradients of the model that was given to register_model"
                )
            pairs = zip(gradients, self._registered.trainable_variables, strict=True)
        named = {gradient_name(variable_tail(v)): g for g, v in pairs if g is not None}
        self._capture_given(named)

    def set_optimizer_variables(self, optimizer_variables: Iterable[Any]) -> None:
        """Capture variables of an optimiser, if they are due."""
        self._capture_state(list(optimizer_variables))

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Add a variable, or what else a collection takes, to a collection."""
        collection: Any = self.get_collection(collection_name)
        collection.add(variable)

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Capture the value of a loss of your own."""
        self.save_tensor(tensor_name, tensor_value, CollectionKeys.LOSSES)

    def save_smdebug_logs(self, logs: Mapping[str, Any] | None) -> None:
        """Capture inputs, labels and predictions of a step, if they are due.

        Args:
            logs: By name: `inputs` or `x`, `labels` or `y`, `predictions` or `y_pred`; others are
                named in the log.
        """
        logs = logs or {}
        self._capture_given({_KNOWN_LOGS[n]: v for n, v in logs.items() if n in _KNOWN_LOGS})
        unknown = ", ".join(sorted(map(str, logs.keys() - _KNOWN_LOGS.keys())))
        if unknown:
            self.say_once(f"save_smdebug_logs saves no {unknown}: give it to hook.save_tensor()")

    def should_save_layer(self, layer_name: str) -> bool:
        """Return whether inputs or outputs of a layer are saved in the step in progress."""
        return any(self.is_due(f"{layer_name}/{side}") for side in ("inputs", "outputs"))

    @guarded("own tensors")
    def _capture_given(self, named: Mapping[str, Any]) -> None:
        self._capture_named(named)

    @guarded("own tensors")
    def _capture_state(self, variables: Sequence[Any]) -> None:
        self._capture_optimizer_variables(variables)

    def _watched_model(self) -> Any:
        model = super()._watched_model()
        return self._registered if model is None else model

    def _detach(self) -> None:
        if self._registered is not None and not self.clock.num_steps:
            logger.warning(
                "the hook saw no step of %s and wrote nothing. It sees "
                "model.fit(callbacks=[hook]) and tapes of hook.wrap_tape, but not "
                "model.train_on_batch.",
                self._registered.name,
            )
        self._registered = None
        super()._detach()

    # What `hook_layer.keras.tape` tells ----------------------------------------------------------

    def tape_begins(self) -> bool:
        """Begin a step, and say whether anything is due in it."""
        if self._is_in_step:  # a `train_step`, whose step is Keras's
            return False
        self._try_to_begin()
        return self.recorder.record is not None and bool(self.collector.due)

    @guarded("steps")
    def _try_to_begin(self) -> None:
        if self.mode is ModeKeys.GLOBAL:
            self.set_mode(ModeKeys.TRAIN)
        if self._registered is not None:
            self._names_of(self._registered)
        self.begin_step()

    @guarded("steps")
    def tape_is_read(self, named: Mapping[str, Any]) -> None:
        """Capture what belongs to the step."""
        self._capture_named(named)
        self.recorder.step_is_captured()
