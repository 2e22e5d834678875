"""Says why nothing is captured of a script that trains without a model that a hook can watch."""

from __future__ import annotations

import atexit
import gc
import logging
from collections.abc import Callable
from typing import Any, Final

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from hook_layer.autopatch.uncaptured import say_why
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import OptimizerCall
from hook_layer.pytorch.unwatched_models import UnwatchedModels
from hook_layer.pytorch.watched_functions import BACKWARD
from hook_layer.pytorch.whole_models import MadeOptimizers, has_graphs

__all__ = ["UnseenTraining"]

logger = logging.getLogger("stepwatch")

_PATIENCE: Final = 50
"""Optimizer steps after which the reason is given; backward passes where no optimizer steps."""


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
        """Count from now on."""
        self._handles = [
            own_hooks.register(register_optimizer_step_post_hook, OptimizerCall(self._on_step)),
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
        """Return why no model was found; empty where nothing was trained."""
        if not (self._num_steps or self._num_backward):
            return ""
        if self._unwatched.scripted_class:
            return (
                f"the model, a {self._unwatched.scripted_class}, is of torch.jit, which has no "
                "place for a hook: train the module that it was made of"
            )
        trained = self._optimizers.parameters()
        if trained and not any(parameter.requires_grad for parameter in trained):
            return (
                "all parameters are frozen: none that the optimizer holds has requires_grad=True, "
                "so nothing is trained"
            )
        if has_graphs():
            return (
                "the model is inside a function that torch.compile compiles: compile the model "
                "instead, and call it outside of such functions"
            )
        owner = _owner_of({id(parameter) for parameter in trained})
        if owner is None:
            return (
                "no torch module: the script trains plain tensors, which belong to no nn.Module; "
                "keep them in one as nn.Parameter, and call it"
            )
        return (
            f"no torch module was called with gradients: the parameters of a {owner} are trained, "
            "but neither it nor a part of it was called; call the model as model(inputs)"
        )


def _owner_of(parameters: set[int]) -> str | None:
    """Return the class of a module that has any of these parameters, or one with a gradient."""
    for thing in gc.get_objects():
        if not issubclass(type(thing), nn.Module):  # a proxy may say anything of its class
            continue
        for parameter in thing.parameters():
            if id(parameter) in parameters or (not parameters and parameter.grad is not None):
                return type(thing).__name__
    return None
