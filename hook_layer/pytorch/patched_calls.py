"""Calling something around methods of torch that have no hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from hook_layer.capture.patched_functions import patch
from hook_layer.process.tracebacks import hide_frame

__all__ = ["call_after", "call_before_compiled"]


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
