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
from hook_layer.core.state import Part
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.pytorch.calls import Arguments, tensors_in
from hook_layer.pytorch.events import TorchEvents
from hook_layer.pytorch.loop_state import LoopState
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
    """Return the mean loss [] over the targets of the batch itself.

    Args:
        model: The model that computed the loss.
        loss: The loss [] that it returned.
        keywords: Its keyword arguments.
        divides_sum: Whether the loss is a divided sum: some models ignore the number of targets.
            This is unknown for compiled code.

    Returns:
        The loss, unchanged unless it was divided by the number of targets of several batches.
    """
    num_targets: Any = keywords.get("num_items_in_batch")
    if not _is_number(num_targets):
        return loss
    is_causal = _name_of_loss(model) == _SHIFTS_LABELS
    targets = _targets(keywords, is_shifted=is_causal)
    if targets is None or not (divides_sum or (is_causal and _is_compiled(loss))):
        return loss
    own = targets.ne(_IGNORED).sum().clamp(min=1)  # a batch without targets has a loss of 0
    mean: Tensor = loss.detach() * num_targets / own
    return mean


def _name_of_loss(model: nn.Module) -> str | None:
    return getattr(getattr(model, "loss_function", None), "__name__", None)


def _targets(keywords: Mapping[str, Any], *, is_shifted: bool) -> Tensor | None:
    shifted, labels = keywords.get("shift_labels"), keywords.get("labels")
    if is_shifted and isinstance(shifted, Tensor):
        return shifted
    if not isinstance(labels, Tensor):
        return None
    # The first word has no predecessor, and is not a target.
    return labels[..., 1:] if is_shifted else labels


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)


def _is_compiled(loss: Tensor) -> bool:
    """Return whether compiled code computed a loss, or the tensor that it was copied from."""
    node: Any = loss.grad_fn
    for _ in range(_MOST_COPIES):
        if node is None or node.name().startswith(_COMPILED):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None and node.name().startswith(_COMPILED)


_SCALAR: Final = "scalar/"
_RETURNED: Final = "returned losses"
"""The part of the hook that captures losses which models return."""


class TrainerDriver(Part):
    """Begins and ends steps when a trainer's callback says so."""

    def __init__(
        self, hook: BaseHook, loop: LoopState, torch_events: TorchEvents, losses: LossTracer
    ) -> None:
        super().__init__(hook.state)
        self._hook = ref(hook)  # it owns this object
        self._loop = loop
        self._torch_events = torch_events
        self._losses = losses
        self._recorder = hook.recorder
        self._collector = hook.collector
        self._stop_listener = hook.stop_listener
        self._own_tensors = hook.own_tensors
        self._interruption = hook.interruption
        self._model: nn.Module | None = None
        self._mode_of_pass: ModeOfPass | None = None
        self._waiting: dict[str, Tensor] = {}
        self._has_warned_of_leaving = False
        self.events.subscribe(events.PassEnds, self._capture_returned_loss, _RETURNED)
        self.events.idle.add(_RETURNED)  # until it follows a model
        self.events.subscribe(events.HookCloses, self._on_close, "close")

    def follow(self, model: nn.Module, mode_of_pass: ModeOfPass | None = None) -> None:
        """Watch the model of a trainer, instead of earlier models.

        Args:
            model: The model. Loss modules in it are watched as losses.
            mode_of_pass: Returns the mode of a step that a forward pass between two steps begins.
                None: no forward pass begins a step.

        Raises:
            HookConfigurationError: It is not a module.
        """
        if not self.is_active or self._model is model:
            return
        registered, torch_events = self._loop.registered, self._torch_events
        self._recorder.end_step()
        losses = [loss for loss in registered.losses if loss not in registered.names]
        torch_events.forget_models()
        self._loop.modes.steps = TrainerSteps(self._begins_by_pass)
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
        steps = self._loop.modes.steps
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
        """Begin a step, unless one of this mode continues.

        Raises:
            HookConfigurationError: The collections are misconfigured (at the first step only).
        """
        if self._model is None or self._steps is None:
            return
        self._set_mode(mode)
        self._steps.announce(mode)
        self._torch_events.on_forward(next(iter(self._loop.registered.models)), (), None)
        if self._waiting:
            self._record_waiting_metrics()

    @guarded("steps")
    def end_step(self, *, may_be_late: bool = False) -> None:
        """End the step in progress.

        Args:
            may_be_late: Whether tensors of it may still arrive before the next step begins.
        """
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
            if not self._has_warned_of_leaving:
                self._has_warned_of_leaving = True
                logger.warning(
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
            named = self._loop.tensors.numbered("Loss_output_", [loss.detach()])
            self._loop.tensors.capture(named, member_of=(CollectionKeys.LOSSES,))

    def reports_losses(self, reports: bool) -> None:
        """Set whether the trainer calls `record_loss`; if not, backward passes show losses."""
        self._own_tensors.has_losses = reports

    @guarded("metrics")
    def record_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Capture numbers as `scalar/{name}` if the collection `metrics` is due."""
        if self.is_due():
            numbers = {name: _number(value) for name, value in metrics.items()}
            named = {_SCALAR + name: v for name, v in numbers.items() if v is not None}
            self._loop.tensors.capture(named, member_of=(CollectionKeys.METRICS,))

    @guarded("metrics")
    def record_metrics_later(self, metrics: Mapping[str, Any]) -> None:
        """Capture numbers that a trainer logs occasionally, as `scalar/{name}`.

        They wait until the collection `metrics` is due; the newest value of a name wins.
        """
        numbers = {name: _number(value) for name, value in metrics.items()}
        self._waiting.update({name: value for name, value in numbers.items() if value is not None})
        self._record_waiting_metrics()

    def _record_waiting_metrics(self) -> None:
        if self.is_due():
            waiting, self._waiting = self._waiting, {}
            self.record_metrics(waiting)

    def _capture_returned_loss(self, event: events.PassEnds) -> None:
        """Capture the loss that a model returns as `{RootClass}_loss_output_{i}`."""
        model, inputs, outputs = event.model, event.inputs, event.outputs
        is_outside = not self._collector.due or self._loop.modes.steps.is_outside_steps
        if outputs is None or is_outside:
            return
        first = next(iter(tensors_in(outputs)), None)
        # Compiled models return outputs without names.
        has_name = not isinstance(outputs, dict) or outputs.get("loss") is not None
        if first is not None and first.ndim == 0 and has_name:
            name = f"{self._loop.registered.models[model]}_loss_output_"
            if isinstance(inputs, Arguments):
                divides_sum = self._losses.divides_sum(first)
                first = mean_of_share(model, first, inputs.keywords, divides_sum=divides_sum)
            named = self._loop.tensors.numbered(name, [first])
            self._loop.tensors.capture(named, member_of=(CollectionKeys.LOSSES,))

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
