"""Keras on PyTorch: a step is plain Python, or compiled by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hook_layer.keras.capturing import ModelCapture
from hook_layer.keras.names import ModelNames
from hook_layer.keras.step_runner import BaseStepRunner
from hook_layer.keras.step_tensors import StepTensors
from hook_layer.pytorch import ranks

__all__ = ["StepRunner", "rank_and_size"]


def rank_and_size(model: Any) -> tuple[int, int]:  # noqa: ARG001 - other backends ask it
    """Return the number of this process, and how many there are."""
    return ranks.rank_and_size()


class StepRunner(BaseStepRunner):
    """Runs steps of a model on PyTorch; copies their tensors at once."""

    def __init__(self, model: Any, kind: str, listener: ModelCapture) -> None:
        super().__init__(model, kind, listener, is_traced=False)
        self._copies: dict[int, tuple[Any, int, Any]] = {}

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run a step and return its tensors; of a compiled step only the gradients."""
        if self._model.jit_compile and not self._model.run_eagerly:
            return original(*args), self._gradients_after_step()
        with self._observe():
            result = original(*args)
        tensors, self._tensors = self._tensors, StepTensors()
        self._copies.clear()
        return result, tensors.named()

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Add copies of tensors of the step, because training may write to the tensors."""
        super().take(prefix, [self._copy(tensor) for tensor in tensors])

    def _copy(self, tensor: Any) -> Any:
        """Return a copy; the same one for an output that the next layer gets unchanged."""
        version = 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public name
        known = self._copies.get(id(tensor))
        if known is None or known[0] is not tensor or known[1] != version:
            known = self._copies[id(tensor)] = tensor, version, tensor.detach().clone()
        return known[2]

    def _begin(self) -> None:
        super()._begin()
        self._copies.clear()

    def _gradients_after_step(self) -> dict[str, Any]:
        self._listener.state.warn_once(
            "jit_compile=True: inputs and outputs of layers, and the inputs, labels and "
            "predictions of the model, are not saved"
        )
        if self._kind != "train":
            return {}
        names = ModelNames(self._model).gradients
        optimizer = self._model.optimizer
        scale = getattr(optimizer, "dynamic_scale", getattr(optimizer, "loss_scale_factor", None))
        if scale is not None:
            self._listener.state.warn_once(
                "jit_compile=True with a scaled loss: gradients are not saved, because their scale "
                "is unknown after the step"
            )
            return {}
        gradients = {
            names[id(v)]: v.value.grad for v in self._model.trainable_variables if id(v) in names
        }
        return {name: grad for name, grad in gradients.items() if grad is not None}
