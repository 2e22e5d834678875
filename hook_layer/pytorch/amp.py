"""Gradients of a training that scales its loss (`torch.amp.GradScaler`).

Between the backward pass and the optimiser's step such gradients are some 65,536 times as large as
they are, and infinite again and again while the scaler searches for a scale; it leaves those steps
out. Neither must be taken for the gradients of the model. Right they are when the scaler lets the
optimiser step; only fused optimisers get them still scaled, together with the scale.

A scaler leaves no trace in the model, the loss or the optimiser. So `watch_scalers` wraps
`GradScaler.scale`, once in a process; the wrapper remembers the scaler and calls the original.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import wraps
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer

__all__ = ["is_scaling", "parameters_of", "unscaled", "watch_scalers"]

_MARK = "_is_watched_by_stepwatch"
_scalers: WeakSet[GradScaler] = WeakSet()


def watch_scalers() -> None:
    """Notice from now on which scalers scale a loss."""
    original = GradScaler.scale
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def scale(self: GradScaler, outputs: Any) -> Any:
        if self.is_enabled():
            _scalers.add(self)
        return original(self, outputs)

    setattr(scale, _MARK, True)
    GradScaler.scale = scale  # type: ignore[method-assign]


def is_scaling() -> bool:
    """Tell whether a loss was scaled, by a scaler that is still there."""
    return len(_scalers) > 0


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
    return {name: tensor / scale.to(tensor.device) for name, tensor in gradients.items()}


def parameters_of(optimizer: Optimizer) -> Iterator[nn.Parameter]:
    """Return the parameters that an optimiser trains."""
    for group in optimizer.param_groups:
        yield from group["params"]
