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
    """Says what is not watched.

    Attributes:
        passed_over: Class of the torch.jit module that it has reported; empty for none.
        has_met_another: Whether it has told of another model than the one that is watched, or may.
    """

    def __init__(self) -> None:
        self.passed_over = ""
        self.has_met_another = False

    def pass_over(self, module: nn.Module) -> None:
        """Report a module of torch.jit."""
        if not self.passed_over:
            self.passed_over = getattr(module, "original_name", type(module).__name__)
            logger.warning(
                "a %s of torch.jit cannot have hooks and is not watched; train the module "
                "that it was made from",
                self.passed_over,
            )

    def meet_another(self, module: nn.Module, model: nn.Module | None) -> None:
        """Report another model, unless it returns a number: then it computes a loss.

        Args:
            module: The other model, which is about to be called.
            model: The one that is watched.
        """
        self.has_met_another = True  # none of its parts is one
        watched = type(model).__name__

        def tell(module: nn.Module, _: Any, outputs: Any) -> None:
            handle.remove()
            values = tensors_in(outputs)
            self.has_met_another = not values or any(value.numel() != 1 for value in values)
            if self.has_met_another:
                logger.warning(
                    "a %s is watched; the other model, a %s, is not",
                    watched,
                    type(module).__name__,
                )

        handle = own_hooks.register(module.register_forward_hook, tell)
