"""Captures tensors of Keras under their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import keras
import numpy as np

from hook_layer.capture.captured_step import CapturedTensor, OwnedArray
from hook_layer.configuration.collections import OPTIMIZER_STEPS, Collection, CollectionKeys
from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder
from hook_layer.core.state import HookState, Part
from hook_layer.core.tensor_capture import CaptureTensors, PlannedTensors, TensorSource
from hook_layer.guard import guarded
from hook_layer.keras.collections import find_layers
from hook_layer.keras.creation_lines import COMPILED, CREATED
from hook_layer.keras.names import ModelNames

__all__ = ["KerasTensors", "ModelCapture"]

_OF_MODEL: Final = ("inputs", "labels", "predictions", "Loss_input")
_WIDENED: Final = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class KerasTensors(TensorSource):
    """Captures tensors of Keras, which are copied to the host first."""

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape of a value."""
        return super().describe(_host_array(value))

    def capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Copy tensors to the host and capture the copies."""
        once: dict[int, OwnedArray | None] = {}
        for name, (value, _) in tensors.items():
            if id(value) not in once:
                once[id(value)] = self._copied(name, value)
        copies = {name: (once[id(value)], plan) for name, (value, plan) in tensors.items()}
        copied = {name: (copy, plan) for name, (copy, plan) in copies.items() if copy is not None}
        return capture(copied) if copied else {}

    def _copied(self, name: str, value: Any) -> OwnedArray | None:
        try:
            return _host_array(value)
        except Exception as error:  # noqa: BLE001 - one bad tensor must not cost the others
            self.failures.tensor_failed(name, error)
            return None


class ModelCapture(Part):
    """Captures tensors of a model."""

    def __init__(self, state: HookState, collector: Collector, recorder: Recorder) -> None:
        super().__init__(state)
        self._collector = collector
        self._recorder = recorder
        self._names: tuple[Any, ModelNames] | None = None
        self._step_tensors_due: dict[tuple[Any, ...], bool] = {}
        self._wants_variables_of: Any = None

    # What a step runner calls --------------------------------------------------------------------

    def wants(self, prefix: str) -> bool:
        """Return whether tensors of this name, without a number, are ever wanted."""
        manager = self._collector.manager
        everything = CollectionKeys.ALL in manager.include
        named = manager.collections.items()
        return _any_matches([c for n, c in named if everything or n in manager.include], prefix)

    def is_due(self, prefix: str) -> bool:
        """Return whether tensors of this name, without a number, are wanted in this step."""
        return _any_matches(self._collector.due, prefix)

    def before_step(self) -> None:
        """Capture variables of a model that was built after the step began, before it is traced."""
        model = self._wants_variables_of
        if model is not None:
            self._wants_variables_of = None
            self.capture_variables(model)

    def before_update(self) -> None:
        """Capture variables of a model that was built after the step began."""
        model, self._wants_variables_of = self._wants_variables_of, None
        if model is not None:
            self.capture_variables(model, may_wait=False)

    # Variables -----------------------------------------------------------------------------------

    def names_of(self, model: Any) -> ModelNames:
        """Return the names of a model's tensors, and fill the collections of its layers."""
        known = self._names
        if known is None or known[0] is not model or not known[1].is_of(model):
            known = self._names = model, ModelNames(model)
            manager = self._collector.manager
            find_layers(manager, known[1].layers)
            for name, layer in known[1].layers.items():
                manager.note_line("layers", name, CREATED.line_of(layer))
            for kind in ("losses", "optimizers"):  # `compile` is given both, often as names
                manager.note_line(kind, model.name, COMPILED.line_of(model))
        return known[1]

    @guarded("variables")
    def capture_variables(self, model: Any, *, may_wait: bool = True) -> None:
        """Capture the variables of a model and of its optimiser, if they are due."""
        names = self.names_of(model)
        optimizer: Any = getattr(model, "optimizer", None)
        due = {each.name for each in self._collector.due if optimizer is not None}
        with_state = CollectionKeys.OPTIMIZER_VARIABLES in due
        if may_wait and (not names.weights or (with_state and not optimizer.built)):
            self._wants_variables_of = model  # the step is going to build it
            return
        self.capture(names.weights)
        if OPTIMIZER_STEPS in due:
            is_frozen = bool(names.weights) and not model.trainable_weights
            counts = {"learning_rate": optimizer.learning_rate, "all_frozen": np.float32(is_frozen)}
            named = {f"{OPTIMIZER_STEPS}/{name}": value for name, value in counts.items()}
            self.capture(named, (OPTIMIZER_STEPS,))
        if with_state:
            self.capture_optimizer_variables(optimizer.variables)

    def capture_optimizer_variables(self, variables: Iterable[Any]) -> None:
        """Capture those of an optimiser's variables that are due."""
        named = {f"{getattr(v, 'path', v.name)}": v for v in variables}
        suffixed = {name if name.endswith(":0") else f"{name}:0": v for name, v in named.items()}
        self.capture(suffixed, (CollectionKeys.OPTIMIZER_VARIABLES,))

    # What lies within a step ---------------------------------------------------------------------

    def needs_step_tensors(self, model: Any, kind: str) -> bool:
        """Return whether tensors are due that exist only while the step is computed."""
        names = self.names_of(model)
        if self._wants_variables_of is not None:
            return True
        key = (*self._collector.due_key, kind, id(names))
        known = self._step_tensors_due.get(key)
        if known is None:
            prefixes = list(_OF_MODEL)
            prefixes += [
                f"{name}/{side}" for name in names.layers for side in ("inputs", "outputs")
            ]
            if kind == "train":
                prefixes += names.gradients.values()
            known = self._step_tensors_due[key] = any(map(self.is_due, prefixes))
        return known

    # How -----------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Wait no more for variables of a model that no step has built."""
        self._wants_variables_of = None

    def release(self) -> None:
        """Release the model."""
        self._names = self._wants_variables_of = None
        self._step_tensors_due.clear()

    def capture(self, tensors: Mapping[str, Any], member_of: tuple[str, ...] = ()) -> None:
        """Capture those of these tensors that are due."""
        self._recorder.capture(self._collector.planned(tensors, member_of))


def _any_matches(collections: Iterable[Collection], prefix: str) -> bool:
    names = (prefix, f"{prefix}_0")
    return any(collection.matches(name) for collection in collections for name in names)


def _host_array(value: Any) -> OwnedArray:
    """Return a copy of a value on the host, that nobody else changes.

    Args:
        value: A tensor or variable of the backend, or what numpy makes an array of.

    Raises:
        Exception: It has no value that can be read, as tensors within a graph have none; of the
            type that the backend gives.
    """
    is_of_keras = isinstance(value, keras.Variable) or keras.ops.is_tensor(value)
    array = np.array(keras.ops.convert_to_numpy(value) if is_of_keras else value)
    name = array.dtype.name
    return OwnedArray(array.astype(np.float32) if name in _WIDENED else array, name)
