"""Runs a step of a Keras model and returns the tensors within it.

Keras computes a step in one function, such as `model.train_function`, which TensorFlow or JAX
compiles. A step without due tensors runs in this function, so it costs nothing. Other steps run in
a second function of the same `train_step`, traced at first use, that also returns the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

from hook_layer.keras.capturing import ModelCapture
from hook_layer.keras.step_tensors import StepTensors
from hook_layer.keras.watch import WatchedModel

__all__ = ["BaseStepRunner"]


class BaseStepRunner:
    """Runs steps of one kind of a model and returns the tensors within them.

    Args:
        model: The model.
        kind: `train`, `test` or `predict`.
        listener: Decides which tensors; known weakly.
        is_traced: Whether the step is traced once, and computed from the trace later.
    """

    def __init__(self, model: Any, kind: str, listener: ModelCapture, *, is_traced: bool) -> None:
        self._model = model
        self._kind = kind
        self._known_listener = ref(listener)
        self._is_traced = is_traced
        self._tensors = StepTensors()
        outer = is_traced and self._sees_outer
        self._watched = WatchedModel(model, self._wants, self, outer=outer)

    _sees_outer = False  # whether an optimiser within another one is out of sight

    @property
    def _listener(self) -> ModelCapture:
        listener = self._known_listener()
        if listener is None:
            raise RuntimeError("the hook of this step no longer exists")
        return listener

    def _wants(self, prefix: str) -> bool:
        listener = self._listener
        return listener.wants(prefix) if self._is_traced else listener.is_due(prefix)

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run a step.

        Returns:
            What the function returns, and the tensors within the step by name.
        """
        raise NotImplementedError

    def computed(self, error: Exception) -> dict[str, Any]:  # noqa: ARG002 - others need it
        """Return what a failed step has computed, by name; nothing of a traced step."""
        return {} if self._is_traced else self._tensors.named()

    # Callbacks of `WatchedModel` -----------------------------------------------------------------

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Add tensors of the step."""
        for tensor in tensors:
            self._tensors.add(prefix, tensor)

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Add gradients, divided by the factor of an optimiser that scales the loss."""
        factor = getattr(optimizer, "loss_scale_factor", None)
        for name, gradient in named.items():
            self.take(name, [gradient if factor is None else gradient / factor])

    def before_update(self) -> None:
        """Report that variables are about to change."""
        self._listener.before_update()

    # Parts of `run` ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Discard the tensors of the step before, where a step or its trace begins."""
        self._tensors = StepTensors()

    @contextmanager
    def _observe(self) -> Iterator[None]:
        """Take tensors of the model, and the batch of its `train_step`, within the block."""
        name = f"{self._kind}_step"
        own, step = vars(self._model).get(name), getattr(self._model, name)

        def observed(*args: Any) -> Any:
            self._begin()
            try:
                self._watched.take_batch(args[-1])
            except Exception as error:  # noqa: BLE001 - only a step of the script's own knows
                self._listener.state.warn_once(f"inputs and labels are not saved: {error}")
            return step(*args)

        vars(self._model)[name] = observed
        try:
            with self._watched.watching():
                yield
        finally:
            if own is None:
                del vars(self._model)[name]
            else:
                vars(self._model)[name] = own

    def _make_function(self) -> Callable[..., Any]:
        """Let Keras make a function of the observed step, and return it."""
        name = f"{self._kind}_function"
        original = vars(self._model).get(name)
        try:
            with self._observe():
                getattr(self._model, f"make_{name}")(force=True)
            made: Callable[..., Any] = getattr(self._model, name)
        finally:
            vars(self._model)[name] = original
        return made
