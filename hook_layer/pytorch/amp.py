"""Unscales losses and gradients of mixed-precision training (`torch.amp.GradScaler`).

Between the backward pass and the optimizer's step, gradients are scaled, by default by 65,536. They
are infinite in steps that the scaler skips. They are correct when the scaler calls the optimizer;
only fused optimizers get scaled gradients together with the scale.

A scaler leaves no trace in the model, the loss or the optimizer. So this module listens to
`GradScaler.scale` and `GradScaler.step`, see `hook_layer.pytorch.watched_functions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.tensor_elements import (
    UnreadableTensorError,
    readable,
    readable_if_possible,
)

__all__ = ["LossScaling", "dense_gradients", "parameters_of", "unscaled"]


class LossScaling:
    """Detects scaled losses and their scale.

    Attributes:
        scalers: The gradient scalers that have scaled a loss and still exist.
        newest_scale: Of a loss of this step of which no backward pass has begun.
    """

    def __init__(self) -> None:
        self.scalers: WeakSet[GradScaler] = WeakSet()
        self._scales: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()
        self.newest_scale: Tensor | None = None

    def unscaled_loss(self, tensor: Tensor) -> tuple[Tensor, bool]:
        """Return the unscaled value of a backward pass's start, detached, and whether it is scaled.

        Tensors that a scaler returned have a known scale. For tensors computed from them, the
        newest scale applies until a backward pass begins.
        """
        scale: Tensor | None = self._scales.get(tensor, self.newest_scale)
        value = readable_if_possible(tensor).detach()
        return (value, False) if scale is None else (value / scale.to(value.device), True)

    def on_scale(self, args: tuple[Any, ...], result: Any) -> None:
        """Note the scale of a loss that `GradScaler.scale` has returned."""
        scaler = args[0]
        if not scaler.is_enabled():
            return
        self.scalers.add(scaler)
        scale = getattr(scaler, "_scale", None)  # get_scale() would wait for the device
        if not isinstance(scale, Tensor):
            return
        self.newest_scale = scale
        for tensor in tensors_in(result):
            self._scales[tensor] = scale


def unscaled(optimizer: Optimizer, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return unscaled gradients; an empty dict if the optimizer skips this step.

    Args:
        optimizer: An optimizer whose step begins.
        gradients: Gradients of its parameters, by name.
    """
    found_inf, scale = (getattr(optimizer, name, None) for name in ("found_inf", "grad_scale"))
    if found_inf is not None and bool(found_inf):
        return {}
    if scale is None:
        return dict(gradients)
    values = {name: readable_if_possible(tensor) for name, tensor in gradients.items()}
    return {name: value / scale.to(value.device) for name, value in values.items()}


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that an optimizer trains."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def dense_gradients(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield the readable gradients of an optimizer; for sharded ones, this rank's part.

    Operations on a whole DTensor would wait for other ranks.
    """
    for parameter in parameters_of(optimizer):
        gradient = parameter.grad
        if gradient is None:
            continue
        with suppress(UnreadableTensorError):
            part = readable(gradient)
            if part.layout is torch.strided:
                yield part.detach()
