"""The functions of torch that have no hooks, and report their calls while a hook listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.amp.grad_scaler import GradScaler

from hook_layer.capture.watched_functions import WatchedFunction
from hook_layer.pytorch.calls import uncompiled

__all__ = ["BACKWARD", "SCALER_SCALE", "SCALER_STEP"]


class _TorchFunction(WatchedFunction):
    """A function of torch, whose wrapper is in no compiled code."""

    def _wrapped(
        self, original: Callable[..., Any], report: Callable[..., None]
    ) -> Callable[..., Any]:
        wrapper = super()._wrapped(original, uncompiled(report))
        # What it calls may be compiled, as without it, but not the wrapper itself.
        skipped: Callable[..., Any] = torch.compiler.disable(wrapper, recursive=False)  # type: ignore[no-untyped-call]
        return skipped


BACKWARD: Final = _TorchFunction(torch.autograd, "backward")
"""`torch.autograd.backward`, which `Tensor.backward` calls."""
SCALER_SCALE: Final = _TorchFunction(GradScaler, "scale")
SCALER_STEP: Final = _TorchFunction(GradScaler, "step")
