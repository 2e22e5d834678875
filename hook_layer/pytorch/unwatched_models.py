"""What the log says of models in a script without a hook that are not watched; each once."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import tensors_in

__all__ = ["UnwatchedModels"]

logger = logging.getLogger("stepwatch")


class UnwatchedModels:
    """Reports what is not watched.

    Attributes:
        scripted_class: Class of the torch.jit module that it has reported; empty for none.
        has_other_model: Whether it has reported another model than the one that is watched, or may.
    """

    def __init__(self) -> None:
        self.scripted_class = ""
        self.has_other_model = False

    def report_scripted(self, module: nn.Module) -> None:
        """Report a module of torch.jit."""
        if not self.scripted_class:
            self.scripted_class = getattr(module, "original_name", type(module).__name__)
            logger.warning(
                "a %s of torch.jit cannot have hooks and is not watched; train the module "
                "that it was made from",
                self.scripted_class,
            )

    def report_other_model(self, module: nn.Module, model: nn.Module | None) -> None:
        """Report another model, unless its next call returns a number: then it computes a loss."""
        self.has_other_model = True  # none of its parts is one
        watched = type(model).__name__

        def report(module: nn.Module, _: Any, outputs: Any) -> None:
            handle.remove()
            values = tensors_in(outputs)
            self.has_other_model = not values or any(value.numel() != 1 for value in values)
            if self.has_other_model:
                logger.warning(
                    "a %s is watched; the other model, a %s, is not",
                    watched,
                    type(module).__name__,
                )

        handle = own_hooks.register(module.register_forward_hook, report)
