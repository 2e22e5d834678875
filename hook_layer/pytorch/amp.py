"""Losses and gradients of a training that scales its loss (`torch.amp.GradScaler`).

Between the backward pass and the optimiser's step such gradients are some 65,536 times as large as
they are, and infinite again and again while the scaler searches for a scale; it leaves those steps
out. Neither must be taken for the gradients of the model. Right they are when the scaler lets the
optimiser step; only fused optimisers get them still scaled, together with the scale.

A scaler leaves no trace in the model, the loss or the optimiser. So `GradScaler.scale` and
`GradScaler.step` are listened to, see `hook_layer.pytorch.watched_functions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.values import own_shard
from hook_layer.pytorch.watched_functions import SCALER_SCALE
from hook_layer.watched_functions import Listening

__all__ = ["LossScaling", "parameters_of", "unscaled"]


class LossScaling:
    """Notices which losses are scaled, by how much."""

    def __init__(self) -> None:
        self._scalers: WeakSet[GradScaler] = WeakSet()
        self._scales: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()
        self._newest_scale: Tensor | None = None

    def listen(self) -> Listening:
        """Notice it from now on, until what is returned is removed."""
        return SCALER_SCALE.listen(self._on_scale)

    @property
    def is_scaling(self) -> bool:
        """Whether a loss was scaled, by a scaler that is still there."""
        return len(self._scalers) > 0

    def unscaled_loss(self, tensor: Tensor) -> Tensor:
        """Return what a backward pass starts from as it was before it was scaled, detached.

        That is known of what a scaler returned. What was computed of it, as a sum, is unscaled if
        no backward pass began since.
        """
        scale = self.scale_of(tensor)
        value = own_shard(tensor).detach()
        return value if scale is None else value / scale.to(value.device)

    def scale_of(self, tensor: Tensor) -> Tensor | None:
        """Return by what a scaler has multiplied what a backward pass starts from."""
        scale: Tensor | None = self._scales.get(tensor, self._newest_scale)
        return scale

    def begin_step(self) -> None:
        """Forget the scale of the step before, whose backward pass nobody may have noted."""
        self._newest_scale = None

    def backward_began(self) -> None:
        """Note that the losses that were scaled before are used by now."""
        self._newest_scale = None

    def _on_scale(self, args: tuple[Any, ...], result: Any) -> None:
        scaler = args[0]
        if not scaler.is_enabled():
            return
        self._scalers.add(scaler)
        scale = getattr(scaler, "_scale", None)  # get_scale() would wait for the device
        if not isinstance(scale, Tensor):
            return
        self._newest_scale = scale
        for tensor in tensors_in(result):
            self._scales[tensor] = scale


def unscaled(optimizer: Optimizer, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return gradients as the optimiser is going to use them; none if it leaves this step out.

    Args:
        optimizer: An optimiser whose step begins.
        gradients: Gradients of its parameters, by name.
    """
    found_inf, scale = (getattr(optimizer, name, None) for name in ("found_inf", "grad_scale"))
    if found_inf is not None and bool(found_inf):
        return {}
    if scale is None:
        return dict(gradients)
    shards = {name: own_shard(tensor) for name, tensor in gradients.items()}
    return {name: tensor / scale.to(tensor.device) for name, tensor in shards.items()}


def parameters_of(optimizer: Optimizer) -> Iterator[nn.Parameter]:
    """Return the parameters that an optimiser trains."""
    for group in optimizer.param_groups:
        yield from group["params"]
