"""Reports models that are not watched, and why nothing of a script is captured."""

from __future__ import annotations

import atexit
import gc
import logging
from collections.abc import Callable
from typing import Any, Final

from torch import nn

from hook_layer.autopatch.uncaptured import say_why
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import STEP_ENDED, tensors_in
from hook_layer.pytorch.model_search import MadeOptimizers, has_graphs
from hook_layer.pytorch.watched_functions import BACKWARD

__all__ = ["UnseenTraining", "UnwatchedModels"]

logger = logging.getLogger("stepwatch")

_PATIENCE: Final = 50
"""Optimizer steps (or backward passes, without optimizers) before the reason is reported."""


class UnwatchedModels:
    """Reports unwatched models.

    Attributes:
        scripted_class: Class of the reported torch.jit module; empty for none.
        has_other_model: Whether another model than the watched one was or may be reported.
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
        """Report another model, unless its next call returns a number: then it is a loss."""
        self.has_other_model = True  # do not report its parts
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


class UnseenTraining:
    """Counts optimizer steps and backward passes until a model is found."""

    def __init__(
        self,
        is_looked_for: Callable[[], bool],
        optimizers: MadeOptimizers,
        unwatched: UnwatchedModels,
    ) -> None:
        self._is_looked_for = is_looked_for
        self._optimizers = optimizers
        self._unwatched = unwatched
        self._num_steps = self._num_backward = 0
        self._handles: list[Any] = []

    def begin(self) -> None:
        """Start counting."""
        self._handles = [
            STEP_ENDED.listen(self._on_step),
            BACKWARD.listen(self._on_backward, is_before_call=True),
        ]
        atexit.register(self._say_why)

    def _on_step(self, *_: object) -> None:
        self._num_steps += 1
        self._look()

    def _on_backward(self, *_: object) -> None:
        self._num_backward += 1
        self._look()

    def _look(self) -> None:
        counted = self._num_steps if self._optimizers else self._num_backward
        if counted >= _PATIENCE or not self._is_looked_for():
            self._say_why()

    def _say_why(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        try:
            reason = self._reason() if handles and self._is_looked_for() else ""
            if reason:
                say_why(reason)
        except Exception:
            logger.exception("finding the reason why nothing is captured failed")

    def _reason(self) -> str:
        """Return why no model was found; empty if nothing was trained."""
        if not (self._num_steps or self._num_backward):
            return ""
        if self._unwatched.scripted_class:
            return (
                f"the model, a {self._unwatched.scripted_class}, is of torch.jit and cannot "
                "have hooks: train the module that it was made from"
            )
        trained = self._optimizers.parameters()
        if trained and not any(parameter.requires_grad for parameter in trained):
            return (
                "all parameters are frozen: none in the optimizer has requires_grad=True, so "
                "nothing is trained"
            )
        if has_graphs():
            return (
                "the model is inside a function that torch.compile compiles: compile the model "
                "instead, and call it outside of such functions"
            )
        owner = _owner_of({id(parameter) for parameter in trained})
        if owner is None:
            return (
                "no torch module: the script trains plain tensors; store them in an "
                "nn.Module as nn.Parameter, and call the module"
            )
        return (
            f"no torch module was called with gradients: the parameters of a {owner} are trained, "
            "but neither it nor a part of it was called; call the model as model(inputs)"
        )


def _owner_of(parameters: set[int]) -> str | None:
    """Return the class of a module that has one of these parameters, or one with a gradient."""
    for thing in gc.get_objects():
        if not issubclass(type(thing), nn.Module):  # a proxy may fake its class
            continue
        for parameter in thing.parameters():
            if id(parameter) in parameters or (not parameters and parameter.grad is not None):
                return type(thing).__name__
    return None
