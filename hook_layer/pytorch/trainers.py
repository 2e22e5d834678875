"""A hook in a trainer of Lightning or Hugging Face, whose callback drives it.

A trainer has a loop of its own. Its model need not be called where a step begins, or at all
(Lightning calls `training_step`), and its validation calls the model as training does. So with
`follow_trainer` steps are no longer known from forward passes and optimisers: they begin with
`trainer_begins_step`, and end with `trainer_ends_step`. What is captured in between, and under
which names, is the same as ever.

A trainer also ends in its own way: a stop request does not raise, and calls
`stop_asked_of_trainer`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss
from torch.optim.optimizer import Optimizer

from hook_layer.collections import CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import Arguments, ModuleCall, tensors_in
from hook_layer.pytorch.events import TorchEvents
from hook_layer.pytorch.loss_shares import mean_of_share
from hook_layer.pytorch.told_steps import ModeOfPass, ToldSteps

__all__ = ["TrainerEvents"]

logger = logging.getLogger("stepwatch")

_SCALAR: Final = "scalar/"


class TrainerEvents(TorchEvents):
    """A hook whose steps a trainer's callback may begin and end.

    Args:
        setup: What the hook is made of.
    """

    _trained: nn.Module | None = None
    _mode_of_pass: ModeOfPass | None = None
    _warned_of_leaving = False

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self._kept: dict[str, Tensor] = {}

    def follow_trainer(self, model: nn.Module, mode_of_pass: ModeOfPass | None = None) -> None:
        """Watch the model of a trainer, instead of what was watched before.

        Args:
            model: The model; the loss modules in it are watched as losses.
            mode_of_pass: Is asked about forward passes of the model between two steps; None: none
                of them begins a step.

        Raises:
            HookConfigurationError: It is no module.
        """
        if not self.is_active or self._trained is model:
            return
        self._end_step()
        losses = [loss for loss in self._registered.losses if loss not in self._registered.names]
        self._forget_models()
        self._steps = ToldSteps(self._begins_by_pass)
        self._trained, self._mode_of_pass = model, mode_of_pass
        self._are_unnamed_too = True
        self._include_metrics()
        root = self._registered.add_model(model)
        self._watch_model(root)
        call = ModuleCall(root, self._on_outputs)
        handle = own_hooks.register(root.register_forward_hook, call, with_kwargs=True)
        self._handles.append(handle)
        for loss in (*losses, *(part for part in root.modules() if _is_loss(part))):
            if loss is not root and self._registered.add_loss(loss) is not None:
                self._watch_loss(loss)

    @property
    def is_step_open(self) -> bool:
        """Whether a step of the trainer began and did not end."""
        return isinstance(self._steps, ToldSteps) and self._steps.is_open

    @property
    def has_optimizer_stepped(self) -> bool:
        """Whether an optimiser of the model has stepped in this step."""
        return isinstance(self._steps, ToldSteps) and self._steps.has_stepped

    def is_due(self, collection: str = CollectionKeys.METRICS) -> bool:
        """Return whether a collection is saved in the step in progress."""
        return self._record is not None and any(c.name == collection for c in self._due)

    @guarded("steps")
    def trainer_begins_step(self, mode: ModeKeys) -> None:
        """Begin a step, unless one of this mode continues.

        Raises:
            HookConfigurationError: The collections are misconfigured (at the first step only).
        """
        if self._trained is None or not isinstance(self._steps, ToldSteps):
            return
        self.set_mode(mode)
        self._steps.tell(mode)
        self._on_forward(next(iter(self._registered.models)), (), None)

    @guarded("steps")
    def trainer_ends_step(self, *, may_be_late: bool = False) -> None:
        """End the step in progress.

        Args:
            may_be_late: Whether something of it may still come before the next one begins.
        """
        if isinstance(self._steps, ToldSteps):
            self._steps.step_ends()
            if not may_be_late:
                self._step_is_captured()

    @guarded("termination")
    def trainer_starts(self) -> None:
        """Handle SIGTERM again, for which a trainer may have installed its own handler."""
        self.interruption.listen()

    @guarded("steps")
    def trainer_pauses(self) -> None:
        """Hand over the rest of the step in progress: the trainer turns to something else."""
        self._end_step()
        self.collector.clear()  # what is computed until the next step begins belongs to none

    @guarded("losses")
    def record_loss(self, loss: Any) -> None:
        """Capture the loss of a pass as `Loss_output_{i}`; whatever is no tensor is left out."""
        if self._due and isinstance(loss, Tensor):
            named = self._numbered("Loss_output_", loss.detach())
            self._capture_all(named, member_of=(CollectionKeys.LOSSES,))

    def losses_are_told(self, are_told: bool = True) -> None:
        """Say whether `record_loss` is called for losses, or the backward pass has to tell them."""
        self._names_losses = are_told

    @guarded("metrics")
    def record_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Capture numbers as `scalar/{name}` where the collection `metrics` is due."""
        if self.is_due():
            numbers = {name: _number(value) for name, value in metrics.items()}
            named = {_SCALAR + name: v for name, v in numbers.items() if v is not None}
            self._capture_all(named, member_of=(CollectionKeys.METRICS,))

    @guarded("metrics")
    def keep_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Capture numbers that a trainer logs now and then, as `scalar/{name}`.

        Where the collection `metrics` is not due they are kept until it is; the newest counts.
        """
        numbers = {name: _number(value) for name, value in metrics.items()}
        self._kept.update({name: value for name, value in numbers.items() if value is not None})
        self._record_kept_metrics()

    def stop_asked_of_trainer(self) -> str | None:
        """Return why the trainer is to end training; None while it continues.

        With several workers the answer is the same in all, in the same step.
        """
        request = self.stop_listener.ending_request if self.is_active else None
        if request is None:
            return None
        if self.stop_listener.is_alone_among_ranks:
            if not self._warned_of_leaving:
                self._warned_of_leaving = True
                logger.warning(
                    "a stop was requested, but the ranks could not agree on it: %s", request
                )
            return None
        return request.reason

    # How -----------------------------------------------------------------------------------------

    def _begins_by_pass(self) -> ModeKeys | None:
        mode = None if self._mode_of_pass is None else self._mode_of_pass()
        if mode is not None:
            self.set_mode(mode)
        return mode

    def _begin_capture(self) -> None:
        super()._begin_capture()
        if self._kept:
            self._record_kept_metrics()

    def _record_kept_metrics(self) -> None:
        if self.is_due():
            kept, self._kept = self._kept, {}
            self.record_metrics(kept)

    def _detach(self) -> None:
        if self._kept:
            names = ", ".join(sorted(self._kept))
            logger.info("values logged after the last saved step are not saved: %.500s", names)
            self._kept.clear()
        self._trained = self._mode_of_pass = None
        super()._detach()

    def begin_step(self) -> None:
        """Begin a step; a trainer stops in its own way."""
        self.stop_listener.raises = not isinstance(self._steps, ToldSteps)
        super().begin_step()

    @guarded("losses")
    def _on_outputs(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        """Capture the loss that a model returns as `{RootClass}_loss_output_{i}`."""
        if not self._due or self._steps.is_aside:
            return
        first = next(iter(tensors_in(outputs)), None)
        # Compiled models return outputs without names.
        has_name = not isinstance(outputs, dict) or outputs.get("loss") is not None
        if first is not None and first.ndim == 0 and has_name:
            name = f"{self._registered.models[model]}_loss_output_"
            if isinstance(inputs, Arguments):
                first = mean_of_share(model, first, inputs.keywords)
            self._capture_all(self._numbered(name, first), member_of=(CollectionKeys.LOSSES,))

    @guarded("steps")
    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        super()._on_optimizer_step(optimizer, has_closure)
        if has_closure and isinstance(self._steps, ToldSteps) and self._record is not None:
            self._capture_optimizer_state(optimizer)  # the step began before the closure

    def _include_metrics(self) -> None:
        manager = self.collection_manager
        manager.create_collection(CollectionKeys.METRICS)
        manager.built_in |= {CollectionKeys.METRICS}  # a trainer need not log any
        manager.include.add(CollectionKeys.METRICS)


def _is_loss(module: nn.Module) -> bool:
    return isinstance(module, _Loss) or type(module).__name__.endswith("Loss")


def _number(value: Any) -> Tensor | None:
    """Return a number as a tensor of one element; None for whatever is none."""
    if isinstance(value, Tensor):
        return value.detach() if value.numel() == 1 else None
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value, dtype=torch.float64)
    return None
