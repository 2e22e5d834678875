"""Decides whether a loss belongs to this hook's models."""

from __future__ import annotations

import threading
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
from torch import nn

from hook_layer.core.recorder import Recorder
from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.steps import ModeTracker

__all__ = ["MANY_OTHERS", "LossOwnership"]

_FEW_OTHERS: Final = 3
MANY_OTHERS: Final = 40
"""Optimizer steps of others since the last call of a watched model, after which losses are theirs:
few after a complete step, many in an incomplete one. A gradient scaler counts twice.
"""


class _Newest(threading.local):
    """The model that was called last in a thread, among all hooks."""

    model: ReferenceType[nn.Module] | None = None


_newest = _Newest()


class LossOwnership:
    """Decides whether a loss belongs to this hook's models, or to other code.

    Args:
        registered: The models.
        modes: Which forward passes belong to steps.
        recorder: Knows whether the open step is complete.

    Attributes:
        num_others: Steps of other optimizers since a model was called.
        has_graph: Whether the newest pass computes gradients.
    """

    def __init__(
        self, registered: RegisteredModules, modes: ModeTracker, recorder: Recorder
    ) -> None:
        self.num_others = 0
        self.has_graph = False
        self._registered = registered
        self._modes = modes
        self._recorder = recorder
        self._thread = 0

    def begin_pass(self, model: nn.Module) -> None:
        """Note that a model is called: later losses in this thread belong to it."""
        _newest.model = ref(model)
        self._thread = threading.get_ident()
        self.has_graph = torch.is_grad_enabled()

    def others_begin(self) -> None:
        """Note that the training of another model begins."""
        self.num_others = max(self.num_others, _FEW_OTHERS)

    @property
    def is_over(self) -> bool:
        """Whether the script now trains another model, which losses belong to.

        After the first step of another optimizer, this model's loss may still follow: in a GAN, it
        is computed from the other model's outputs.
        """
        if not self.num_others:
            return False
        is_complete = self._recorder.is_captured or self._modes.is_evaluating
        return self.num_others >= (_FEW_OTHERS if is_complete else MANY_OTHERS)

    @property
    def is_in_thread(self) -> bool:
        """Whether this thread called a model last; other threads may train other models."""
        return self._thread in (0, threading.get_ident())

    @property
    def is_newest(self) -> bool:
        """Whether this thread called a model last, and it belongs to this hook's models."""
        if threading.get_ident() != self._thread:
            return False
        newest = None if _newest.model is None else _newest.model()
        return newest in self._registered.names

    def trains_another(self, outputs: Any) -> bool:
        """Return whether a loss trains another model while this one is validated.

        A loss that is computed from a pass without gradients has none. The check applies only where
        a trainer reports the steps, which may begin without any pass.
        """
        if self.has_graph or not self._modes.is_evaluating or not torch.is_grad_enabled():
            return False
        if self._modes.steps.knows_optimizers:
            return False
        return any(value.requires_grad for value in tensors_in(outputs))
