"""Functions and methods of torch that have no hooks of their own, and report their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from hook_layer.capture.patched_functions import patch
from hook_layer.capture.watched_functions import WatchedFunction
from hook_layer.process.tracebacks import hide_frame
from hook_layer.pytorch.calls import uncompiled

__all__ = [
    "BACKWARD",
    "SCALER_SCALE",
    "SCALER_STEP",
    "TENSOR_BACKWARD",
    "call_after",
    "call_before_compiled",
]


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
TENSOR_BACKWARD: Final = _TorchFunction(torch.Tensor, "backward")
SCALER_SCALE: Final = _TorchFunction(GradScaler, "scale")
SCALER_STEP: Final = _TorchFunction(GradScaler, "step")


def call_after(kind: type, name: str, callback: Callable[[Any], None]) -> None:
    """Call back with the object whenever a method of a class was called."""
    patch(kind, name, after=lambda _, obj, *__, **___: callback(obj))


def call_before_compiled(module: nn.Module, callback: Callable[[nn.Module], bool]) -> None:
    """Call back before each call of a module that was compiled in place, while that is True."""
    compiled: Any = module._compiled_call_impl  # noqa: SLF001 - no public way

    def call(*args: Any, **kwargs: Any) -> Any:
        if not callback(module):
            module._compiled_call_impl = compiled  # noqa: SLF001
        try:
            return compiled(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    module._compiled_call_impl = call  # noqa: SLF001
