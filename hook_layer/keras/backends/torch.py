"""Keras on PyTorch: a step is plain Python, or compiled by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hook_layer.keras.inside import BaseInside, Listener
from hook_layer.keras.met import Met
from hook_layer.keras.names import ModelNames
from hook_layer.pytorch import distributed

__all__ = ["Inside", "rank_and_size"]


def rank_and_size(model: Any) -> tuple[int, int]:  # noqa: ARG001 - other backends ask it
    """Return the number of this process, and how many there are."""
    return distributed.rank_and_size()


class Inside(BaseInside):
    """Runs steps of a model on PyTorch; what is met is copied at once.

    Args:
        model: The model.
        kind: `train`, `test` or `predict`.
        listener: What must be looked for.
    """

    def __init__(self, model: Any, kind: str, listener: Listener) -> None:
        super().__init__(model, kind, listener, is_traced=False)

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run a step, and look into it; of a compiled one only at what stays behind it."""
        if self._model.jit_compile and not self._model.run_eagerly:
            return original(*args), self._left_behind()
        with self._looking():
            result = original(*args)
        met, self._met = self._met, Met()
        return result, met.named()

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Copy tensors that were met: training may write to them."""
        super().take(prefix, [tensor.detach().clone() for tensor in tensors])

    def _left_behind(self) -> dict[str, Any]:
        self._listener.say_once(
            "jit_compile=True: inputs and outputs of layers, and the inputs, labels and "
            "predictions of the model, are not saved"
        )
        if self._kind != "train":
            return {}
        names = ModelNames(self._model).gradients
        optimizer = self._model.optimizer
        scale = getattr(optimizer, "dynamic_scale", getattr(optimizer, "loss_scale_factor", None))
        if scale is not None:
            self._listener.say_once(
                "jit_compile=True with a scaled loss: gradients are not saved, because their scale "
                "is unknown after the step"
            )
            return {}
        gradients = {
            names[id(v)]: v.value.grad for v in self._model.trainable_variables if id(v) in names
        }
        return {name: grad for name, grad in gradients.items() if grad is not None}
