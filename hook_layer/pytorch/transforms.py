"""Detects models that torch.func's transforms call with substituted parameters.

`vmap(grad(loss))` around `functional_call(model, ...)` calls the model with tensors that have no
values of their own. Nothing of such a pass can be saved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Final

import torch
from torch import nn

__all__ = ["interpreter_stack", "is_transformed", "outside_of_transforms"]

logger = logging.getLogger("stepwatch")

interpreter_stack: Final[Callable[[], object]] = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001 - no public way
"""Returns the innermost active transform; None without any."""
_ALWAYS: Final = nullcontext()


def is_transformed(model: nn.Module) -> bool:
    """Return whether a transform calls a model with substituted parameters; log it once."""
    if interpreter_stack() is None:
        return False
    first: object = next(model.parameters(), None)
    if first is None or isinstance(first, nn.Parameter):
        return False
    _warn()
    return True


def outside_of_transforms() -> AbstractContextManager[object]:
    """Return a context without active transforms.

    Within a transform, everything that is computed from a model's own parameters belongs to the
    transform, and has no values.
    """
    return _ALWAYS if interpreter_stack() is None else torch._C._DisableFuncTorch()  # noqa: SLF001


@cache
def _warn() -> None:
    logger.warning(
        "models called with functional_call inside torch.func transforms (vmap, grad) are "
        "not watched; their training is not saved"
    )
