"""Lets the callback of a trainer (Lightning or Hugging Face) begin and end the steps of a hook.

A trainer may begin a step without calling its model, and its validation calls the model, too. So
forward passes and optimizers do not show the steps. A stop request raises no exception.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.core import events
from hook_layer.core.hook import BaseHook
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.pytorch.calls import Arguments, tensors_in
from hook_layer.pytorch.events import TorchEvents
from hook_layer.pytorch.loop_state import LoopState, TorchPart
from hook_layer.pytorch.losses import LossTracer
from hook_layer.pytorch.steps import ModeOfPass, TrainerSteps

__all__ = ["TrainerDriver", "mean_of_share"]

logger = logging.getLogger("stepwatch")


_IGNORED: Final = -100
_SHIFTS_LABELS: Final = "ForCausalLMLoss"
_MOST_COPIES: Final = 8
_COMPILED: Final = "CompiledFunctionBackward"


def mean_of_share(
    model: nn.Module, loss: Tensor, keywords: Mapping[str, Any], *, divides_sum: bool
) -> Tensor:
    """Return the mean of a model's loss [] over the targets of the batch itself.

    A Trainer may divide it by the number of targets of several batches, and some models ignore
    that number: then the loss is no divided sum. This is unknown for compiled code.
    """
    num_targets: Any = keywords.get("num_items_in_batch")
    is_tensor = isinstance(num_targets, Tensor) and num_targets.numel() == 1
    if not (is_tensor or isinstance(num_targets, int | float)):
        return loss
    function = getattr(model, "loss_function", None)
    is_causal = getattr(function, "__name__", "") == _SHIFTS_LABELS
    targets = _targets(keywords, is_shifted=is_causal)
    if targets is None or not (divides_sum or (is_causal and _is_compiled(loss))):
        return loss
    own = targets.ne(_IGNORED).sum().clamp(min=1)  # a batch without targets has a loss of 0
    mean: Tensor = loss.detach() * num_targets / own
    return mean


def _targets(keywords: Mapping[str, Any], *, is_shifted: bool) -> Tensor | None:
    shifted, labels = keywords.get("shift_labels"), keywords.get("labels")
    if is_shifted and isinstance(shifted, Tensor):
        return shifted
    if not isinstance(labels, Tensor):
        return None
    # The first word has no predecessor, and is not a target.
    return labels[..., 1:] if is_shifted else labels


def _is_compiled(loss: Tensor) -> bool:
    """Return whether compiled code computed a loss, or the tensor that it was copied from."""
    node: Any = loss.grad_fn
    for _ in range(1 + _MOST_COPIES):
        if node is None or node.name().startswith(_COMPILED):
            return node is not None
        node = node.next_functions[0][0] if node.next_functions else None
    return False


_SCALAR: Final = "scalar/"
_RETURNED: Final = "returned losses"
"""The part of the hook that captures losses which models return."""


class TrainerDriver(TorchPart):
    """Begins and ends steps when a trainer's callback says so."""

    def __init__(
        self, hook: BaseHook, loop: LoopState, torch_events: TorchEvents, losses: LossTracer
    ) -> None:
        super().__init__(hook, loop)
        self._hook = ref(hook)  # it owns this object
        self._torch_events = torch_events
        self._losses = losses
        self._stop_listener = hook.stop_listener
        self._own_tensors = hook.own_tensors
        self._interruption = hook.interruption
        self._model: nn.Module | None = None
        self._mode_of_pass: ModeOfPass | None = None
        self._waiting: dict[str, Tensor] = {}
        self.events.subscribe(events.PassEnds, self._capture_returned_loss, _RETURNED)
        self.events.idle.add(_RETURNED)  # until it follows a model
        self.events.subscribe(events.HookCloses, self._on_close, "close")

    def follow(self, model: nn.Module, mode_of_pass: ModeOfPass | None = None) -> None:
        """Watch the model of a trainer, and the losses in it, instead of earlier models.

        Args:
            model: The model.
            mode_of_pass: Returns the mode of a step that a forward pass between two steps begins.
                None: no forward pass begins a step.
        """
        if not self.is_active or self._model is model:
            return
        registered, torch_events = self._registered, self._torch_events
        self._recorder.end_step()
        losses = [loss for loss in registered.losses if loss not in registered.names]
        torch_events.forget_models()
        self._loop.steps = TrainerSteps(self._begins_by_pass)
        self._stop_listener.raises = False
        self._model, self._mode_of_pass = model, mode_of_pass
        self.events.idle.discard(_RETURNED)
        self._losses.captures_unnamed_too = True
        self._include_metrics()
        root = registered.add_model(model)
        torch_events.follows_outputs = True
        torch_events.watch_model(root)
        for loss in (*losses, *(part for part in root.modules() if _is_loss(part))):
            if loss is not root and registered.add_loss(loss) is not None:
                torch_events.watch_loss(loss)

    @property
    def _steps(self) -> TrainerSteps | None:
        steps = self._loop.steps
        return steps if isinstance(steps, TrainerSteps) else None

    # Steps ---------------------------------------------------------------------------------------

    @property
    def is_step_open(self) -> bool:
        """Whether a step of the trainer is open."""
        return self._steps is not None and self._steps.is_open

    @property
    def has_optimizer_stepped(self) -> bool:
        """Whether an optimizer of the model has stepped in this step."""
        return self._steps is not None and self._steps.has_stepped

    def is_due(self, collection: str = CollectionKeys.METRICS) -> bool:
        """Return whether a collection is saved in the step in progress."""
        return self._recorder.record is not None and self._collector.is_due(collection)

    @guarded("steps")
    def begin_step(self, mode: ModeKeys) -> None:
        """Begin a step, unless one of this mode continues."""
        if self._model is None or self._steps is None:
            return
        self._set_mode(mode)
        self._steps.announce(mode)
        self._torch_events.on_forward(next(iter(self._registered.models)), (), None)
        if self._waiting:
            self._record_waiting_metrics()

    @guarded("steps")
    def end_step(self, *, may_be_late: bool = False) -> None:
        """End the step in progress; if it may be late, tensors of it may still arrive."""
        if self._steps is not None:
            if self._waiting:
                self._record_waiting_metrics()
            self._steps.step_ends()
            if not may_be_late:
                self._recorder.step_is_captured()

    @guarded("termination")
    def start(self) -> None:
        """Handle SIGTERM again, because a trainer may have installed its own handler."""
        self._interruption.listen()

    @guarded("steps")
    def pause(self) -> None:
        """Hand over the rest of the step in progress: the trainer does something else now."""
        self._recorder.end_step()
        self._collector.clear()  # tensors computed before the next step belong to no step

    def stop_reason(self) -> str | None:
        """Return why the trainer must end training; None while it continues.

        All ranks get the same answer in the same step.
        """
        request = self._stop_listener.ending_request if self.is_active else None
        if request is None:
            return None
        if self._stop_listener.is_alone_among_ranks:
            self.failures.warn_once(
                "a stop was requested, but the ranks could not agree on it: %s", request
            )
            return None
        return request.reason

    def _begins_by_pass(self) -> ModeKeys | None:
        mode = None if self._mode_of_pass is None else self._mode_of_pass()
        if mode is not None:
            self._set_mode(mode)
        return mode

    def _set_mode(self, mode: ModeKeys) -> None:
        hook = self._hook()
        if hook is not None:
            hook.set_mode(mode)

    # Losses and metrics --------------------------------------------------------------------------

    @guarded("losses")
    def record_loss(self, loss: Any) -> None:
        """Capture the loss of a pass as `Loss_output_{i}`; ignore a value that is not a tensor."""
        if self._collector.due and isinstance(loss, Tensor):
            named = self._tensors.numbered("Loss_output_", [loss.detach()])
            self._tensors.capture(named, member_of=(CollectionKeys.LOSSES,))

    def reports_losses(self, reports: bool) -> None:
        """Set whether the trainer calls `record_loss`; if not, backward passes show losses."""
        self._own_tensors.has_losses = reports

    @guarded("metrics")
    def record_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Capture numbers as `scalar/{name}` if the collection `metrics` is due."""
        if self.is_due():
            self.record_metrics_later(metrics)

    @guarded("metrics")
    def record_metrics_later(self, metrics: Mapping[str, Any]) -> None:
        """Capture numbers that a trainer logs occasionally, as `scalar/{name}`.

        They wait until the collection `metrics` is due; the newest value of a name wins.
        """
        numbers = {str(name): _number(value) for name, value in metrics.items()}
        self._waiting.update({name: value for name, value in numbers.items() if value is not None})
        self._record_waiting_metrics()

    @guarded("metrics")
    def _record_waiting_metrics(self) -> None:
        if self.is_due():
            waiting, self._waiting = self._waiting, {}
            named = {_SCALAR + name: value for name, value in waiting.items()}
            self._tensors.capture(named, member_of=(CollectionKeys.METRICS,))

    def _capture_returned_loss(self, event: events.PassEnds) -> None:
        """Capture the loss that a model returns as `{RootClass}_loss_output_{i}`."""
        model, inputs, outputs = event.model, event.inputs, event.outputs
        is_outside = not self._collector.due or self._loop.steps.is_outside_steps
        if outputs is None or is_outside:
            return
        first = next(iter(tensors_in(outputs)), None)
        # Compiled models return outputs without names.
        has_name = not isinstance(outputs, dict) or outputs.get("loss") is not None
        if first is not None and first.ndim == 0 and has_name:
            name = f"{self._registered.models[model]}_loss_output_"
            if isinstance(inputs, Arguments):
                divides_sum = self._losses.divides_sum(first)
                first = mean_of_share(model, first, inputs.keywords, divides_sum=divides_sum)
            named = self._tensors.numbered(name, [first])
            self._tensors.capture(named, member_of=(CollectionKeys.LOSSES,))

    def _include_metrics(self) -> None:
        manager = self._collector.manager
        manager.create_collection(CollectionKeys.METRICS)
        manager.built_in |= {CollectionKeys.METRICS}  # a trainer need not log any
        manager.include.add(CollectionKeys.METRICS)

    def _on_close(self, _: events.HookCloses) -> None:
        if self._waiting:
            names = ", ".join(sorted(self._waiting))
            logger.info("values logged after the last saved step are not saved: %.500s", names)
            self._waiting.clear()
        self._model = self._mode_of_pass = None


def _is_loss(module: nn.Module) -> bool:
    return isinstance(module, _Loss) or type(module).__name__.endswith("Loss")


def _number(value: Any) -> Tensor | None:
    """Return a number as a tensor of one element; None for any other value."""
    if isinstance(value, Tensor):
        return value.detach() if value.numel() == 1 else None
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value, dtype=torch.float64)
    return None
