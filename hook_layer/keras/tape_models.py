"""Finds the models that a loop calls in the block of a tape, and collects their tensors.

Whether the tape belongs to a step of training is known only when its gradients are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from hook_layer.keras.names import ModelNames
from hook_layer.keras.step_tensors import StepTensors
from hook_layer.keras.watch import WatchedModel

__all__ = ["TapeModels"]


class TapeModels:
    """The models that are called in the block of one tape, without those inside other models.

    Attributes:
        models: The models in call order.
        tensors: References to their tensors, and to those of losses; nothing is copied.
    """

    def __init__(self) -> None:
        self.models: list[Any] = []
        self.tensors = StepTensors()
        self._known: set[int] = set()
        self._watching = ExitStack()

    def watch(self, model: Any) -> None:
        """Collect the tensors of a model that is about to be called, until the block ends."""
        if id(model) in self._known:
            return
        self._known |= {id(model), *map(id, ModelNames(model).layers.values())}
        is_first = not self.models
        self.models.append(model)
        watched = WatchedModel(model, lambda name: is_first or name != "Loss_input", self)
        self._watching.enter_context(watched.watching(with_inputs=True))

    def close(self) -> None:
        """End at the end of the block."""
        self._watching.close()

    # Callbacks of `WatchedModel` -----------------------------------------------------------------

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Keep tensors."""
        for tensor in tensors:
            self.tensors.add(prefix, tensor)

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Leave them: the tape has them."""

    def before_update(self) -> None:
        """Nothing to do: variables are captured with the gradients."""
