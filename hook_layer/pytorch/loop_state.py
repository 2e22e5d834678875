"""What all parts of the hook for PyTorch share about the training loop."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.core.hook import BaseHook
from hook_layer.core.state import Part
from hook_layer.pytorch.amp import LossScaling
from hook_layer.pytorch.loop_counts import GradientNorms, LoopCounts
from hook_layer.pytorch.module_calls import StepTensors
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.overridden_methods import OverriddenMethods
from hook_layer.pytorch.parameters import GradientReader
from hook_layer.pytorch.steps import LossOwnership, StepBounds, StepSize

__all__ = ["LoopObserver", "LoopState", "TorchPart"]


class LoopObserver:
    """Gets notifications about the optimizers of a script; the base class ignores them."""

    def leaves_out(self, models: Iterable[nn.Module]) -> bool:  # noqa: ARG002
        """Return whether the script's optimizers hold no parameters of any of these models."""
        return False

    def on_other_optimizer(self, optimizer: Optimizer) -> None:
        """Note that an optimizer steps that trains none of the models."""

    def on_steps_without_effect(self) -> None:
        """Handle several consecutive steps without a gradient, or without a call of the model."""

    def on_training_in_evaluation(self) -> None:
        """Note that an optimizer of our parameters has stepped in a mode of evaluation."""

    def on_others_train(self, optimizer: Optimizer) -> None:
        """Handle 20 steps of an optimizer of other parameters since the last forward pass."""


class LoopState:
    """What all parts share about the training loop.

    Attributes:
        registered: The models and losses.
        steps: Decides where steps begin and end.
        counts: Counts faults of the loop.
        ownership: Decides which losses belong to these models.
        gradients: The gradients of the step.
        norms: Norms of gradients, before and after they are clipped.
        scaling: Which losses are scaled, and their scale.
        size: Ends steps that hold too much.
        tensors: Names and captures the tensors of the step.
        overridden: Which tensors a subclass of the hook captures.
        observer: Gets notifications about the optimizers of the script.
        has_compiled: Whether torch.compile has compiled a model.
    """

    def __init__(
        self,
        hook: BaseHook,
        registered: RegisteredModules,
        overridden: OverriddenMethods,
        queue_bytes: float,
    ) -> None:
        self.registered = registered
        self.steps = StepBounds()
        self.counts = LoopCounts()
        self.ownership = LossOwnership(self, hook.clock, hook.recorder)
        self.gradients = GradientReader()
        self.norms = GradientNorms()
        self.scaling = LossScaling()
        self.size = StepSize(hook.failures, hook.recorder, hook.collector, queue_bytes)
        self.tensors = StepTensors(hook.failures, hook.collector, hook.recorder)
        self.overridden = overridden
        self.observer = LoopObserver()
        self.has_compiled = False


class TorchPart(Part):
    """A part of the hook for PyTorch."""

    def __init__(self, hook: BaseHook, loop: LoopState) -> None:
        super().__init__(hook.state)
        self._loop = loop
        self._registered = loop.registered
        self._tensors = loop.tensors
        self._collector = hook.collector
        self._recorder = hook.recorder
