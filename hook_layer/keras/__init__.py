"""The hook for Keras 3: `from hook_layer.keras import KerasHook`.

The page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hook_layer.frameworks import KERAS

try:
    import keras
    from keras import ops as _of_keras_3  # noqa: F401 - Keras 2 has none
except ImportError as error:
    raise KERAS.missing() from error

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import HookConfigurationError, TrainingStoppedError
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.guard import guarded
from hook_layer.keras.batch_loop import watch_batches
from hook_layer.keras.collections import DEFAULTS, Collection
from hook_layer.keras.events import KerasEvents
from hook_layer.keras.names import gradient_name, variable_tail
from hook_layer.report import HookReport

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "TrainingStoppedError",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


_KNOWN_LOGS: Final = {
    "inputs": "inputs",
    "labels": "labels",
    "model_input": "inputs",
    "predictions": "predictions",
    "x": "inputs",
    "y": "labels",
    "y_pred": "predictions",
}


class KerasHook(OriginalHook, KerasEvents):
    """Captures tensors of a Keras training.

    The arguments are those of `hook_layer.core.original_hook.OriginalHook`. `losses` and `metrics`
    are always saved. With `include_workers="all"`, too, only the process of rank 0 writes, and the
    log says so.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[KerasHook]]
    if TYPE_CHECKING:

        def get_collection(self, name: str, create: bool = True) -> Collection: ...  # noqa: D102

    def register_model(self, model: Any) -> None:
        """Name the model of a loop of your own: of `train_on_batch`, or around a tape.

        Raises:
            HookConfigurationError: It is no Keras model.
        """
        if not isinstance(model, keras.Model):
            raise HookConfigurationError(f"model={model!r:.200} must be a keras.Model")
        self._forget_batches()
        self._registered = model
        if self.is_active:
            self._forget_batches = watch_batches(self, model)

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
            self.state.warn_once(
                f"save_smdebug_logs saves no {unknown}: give it to hook.save_tensor()"
            )

    def should_save_layer(self, layer_name: str) -> bool:
        """Return whether inputs or outputs of a layer are saved in the step in progress."""
        return any(
            self.model_capture.is_due(f"{layer_name}/{side}") for side in ("inputs", "outputs")
        )

    @guarded("own tensors")
    def _capture_given(self, named: Mapping[str, Any]) -> None:
        self.model_capture.capture(named)

    @guarded("own tensors")
    def _capture_state(self, variables: Sequence[Any]) -> None:
        self.model_capture.capture_optimizer_variables(variables)


Hook = KerasHook
KerasHook.current = CurrentHook(KerasHook)
get_hook = KerasHook.current.get_hook
set_hook = KerasHook.current.set_hook
del_hook = KerasHook.current.del_hook


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
