"""Finds the losses of a step: from loss modules, loss functions, and names that a script gives."""

from __future__ import annotations

import threading
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from hook_layer.configuration.collections import LOSS_INPUTS, CollectionKeys
from hook_layer.core.own_tensors import OwnTensors
from hook_layer.core.recorder import Recorder
from hook_layer.core.state import Part
from hook_layer.guard import guarded
from hook_layer.pytorch.amp import LossScaling
from hook_layer.pytorch.calls import ModuleHooks, tensors_in
from hook_layer.pytorch.loop_counts import LoopCounts
from hook_layer.pytorch.loss_calls import UNNAMED, FunctionalLosses, outputs_first
from hook_layer.pytorch.loss_functions import LOSS_FUNCTIONS, WatchedLoss
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.steps import ModeTracker, StepSize, is_recomputing
from hook_layer.pytorch.torch_capture import TorchCapture

__all__ = ["MANY_OTHERS", "LossTracer", "LossTurn"]

_FEW_OTHERS: Final = 3
MANY_OTHERS: Final = 40
"""Optimizer steps of others since the last call of a watched model, after which losses are theirs:
few after a complete step, many in an incomplete one. A gradient scaler counts twice.
"""


class _Newest(threading.local):
    """The model that was called last in a thread, among all hooks."""

    model: ReferenceType[nn.Module] | None = None


_newest = _Newest()


class LossTurn:
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


_MOST_INPUTS: Final = 4
_MANY_LOSSES: Final = 64
"""Number of losses in a step from which on each loss checks the step's size."""


class LossTracer(Part):
    """Finds the losses of a step, and the tensors that they compare.

    Args:
        capture: Captures tensors of the models.
        own_tensors: Knows whether the script names its losses.
        size: Ends steps that hold too much.
        counts: Counts faults of the training loop.

    Attributes:
        scaling: Which losses are scaled, and their scale.
        turn: Decides which losses belong to these models.
        captures_unnamed_too: Whether a function's loss is saved as `Loss_output_{i}` as well.
    """

    def __init__(
        self, capture: TorchCapture, own_tensors: OwnTensors, size: StepSize, counts: LoopCounts
    ) -> None:
        super().__init__(capture.state)
        self.scaling = LossScaling()
        self.turn = LossTurn(capture.registered, capture.modes, capture.recorder)
        self.captures_unnamed_too = False
        self._capture = capture
        self._tensors = capture.tensors
        self._modes = capture.modes
        self._collector = capture.collector
        self._registered = capture.registered
        self._own_tensors = own_tensors
        self._size = size
        self._counts = counts
        self._functional = FunctionalLosses()
        self._has_loss = False  # from a module, or named by the script
        self._listening: list[Any] = []
        self._asked: dict[tuple[Any, ...], bool] = {}
        self._modules = ModuleHooks(self._on_loss)

    # Steps and passes ----------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Forget the losses of the previous step."""
        self._has_loss = False
        self.scaling.begin_step()
        self._functional.forget()

    @guarded("losses")
    def begin_pass(self) -> None:
        """Forget earlier calls; the following losses use a model's outputs."""
        self._functional.pass_begins()

    @guarded("losses")
    def begin_backward(self, args: tuple[Any, ...]) -> None:
        """Capture the tensor that a backward pass starts from, unless it has a name already."""
        self._capture_roots(args[:1])
        self.scaling.backward_began()

    def divides_sum(self, loss: Tensor) -> bool:
        """Return whether a loss is a multiple of a sum that a function of this pass returned."""
        return self._functional.divides_sum(loss)

    def end_losses(self) -> None:
        """Forget all calls so far: this step has no further loss."""
        self._functional.forget()

    def forget(self) -> None:
        """Forget all calls, and which calls the model is trained by."""
        self._functional.forget_all()

    # Listening -----------------------------------------------------------------------------------

    @guarded("losses")
    def listen(self, *, is_on: bool) -> None:
        """Start or stop listening to losses.

        A compiled model is recompiled if a function that it calls changes. So for compiled models,
        functions are listened to until the end.
        """
        if not is_on and not self._capture.has_compiled:
            self.stop_listening()
            return
        self._modules.watch_only(set(self._registered.losses) if is_on else frozenset())
        if not self._listening:
            self._listening = [LOSS_FUNCTIONS.listen(self._on_function)]

    def stop_listening(self) -> None:
        """Stop listening to losses."""
        self._modules.watch_only(frozenset())
        while self._listening:
            self._listening.pop().remove()

    def stop(self) -> None:
        """Remove all hooks."""
        self.forget()
        self.stop_listening()
        self._modules.stop()

    @guarded("losses")
    def _on_loss(self, loss: nn.Module, inputs: Any, outputs: Any) -> None:
        if not self.turn.is_in_thread or self.turn.is_over or self.turn.trains_another(outputs):
            return
        if is_recomputing():
            return
        name = self._registered.loss_name(loss)
        if self._modes.is_training:
            self._functional.note_module(name, outputs)
        elif self._functional.is_found(outputs):
            self._has_loss = True
            return
        self.capture(name, inputs, outputs)

    @guarded("losses")
    def _on_function(self, given: tuple[WatchedLoss, Any, Any], value: Any) -> None:
        if self._modes.is_outside_steps:
            self._counts.loss_outside_steps()
        if not self._collector.due or is_recomputing() or not self._is_turn(value):
            return
        function, args, kwargs = given
        call = function, function.arguments(args, kwargs)
        if self._modes.is_training:
            with_inputs = self._asks_for_inputs(function.class_name)
            self._functional.note(call, value, with_inputs=with_inputs)
        elif self._modes.is_evaluating and not self._modes.ignores_losses:
            found = self._functional.of_validation(call, value)
            if found is not None:
                self._capture_named(found.name, found.inputs, found.value)

    def _is_turn(self, outputs: Any) -> bool:
        turn = self.turn
        return turn.is_newest and not turn.is_over and not turn.trains_another(outputs)

    # Capturing -----------------------------------------------------------------------------------

    @guarded("losses")
    def capture(self, name: str, inputs: Any, outputs: Any) -> None:
        """Capture a loss of a loss module, or one that the script reports.

        Args:
            name: Name of the loss.
            inputs: Tensors that it compares.
            outputs: Its value.
        """
        if self._modes.ignores_losses:
            self._counts.loss_outside_steps()
            return
        self._has_loss = True
        self._functional.forget_functions()
        if not self._collector.due:
            return
        has_many = self._tensors.count(f"{name}_output_") >= _MANY_LOSSES
        if not (has_many and self._size.end_if_full()):
            self._capture_named(name, inputs, outputs)

    def _capture_roots(self, roots: Any) -> None:
        has_names = self._own_tensors.has_losses and not self.captures_unnamed_too
        if not self._collector.due or has_names or self._has_loss:
            return
        if self._modes.ignores_losses or not self._is_turn(roots):
            return
        for loss in tensors_in(roots):
            if loss.numel() == 1:
                self._capture_root(loss)

    def _capture_root(self, loss: Tensor) -> None:
        """Capture a loss under the name of its function, or as one without a name."""
        unscaled = self.scaling.unscaled_loss(loss)
        is_scaled = self.scaling.scale_of(loss) is not None
        call = self._functional.of_training(loss, unscaled, is_scaled=is_scaled)
        is_named = call is not None and call.name != UNNAMED
        if call is not None and is_named:
            self._capture_named(call.name, call.inputs, call.value)
        if not self._own_tensors.has_losses and (not is_named or self.captures_unnamed_too):
            inputs: Any = () if call is None or is_named else call.inputs
            self._capture_named(UNNAMED, inputs, unscaled)

    def _capture_named(self, name: str, inputs: Any, outputs: Any) -> None:
        in_order = outputs_first(name, tensors_in(inputs))
        compared = self._tensors.numbered(f"{name}_input_", in_order)
        self._tensors.capture(compared, member_of=(LOSS_INPUTS,))
        losses = self._tensors.numbered(f"{name}_output_", outputs)
        self._tensors.capture(losses, member_of=(CollectionKeys.LOSSES,))

    def _asks_for_inputs(self, name: str) -> bool:
        """Return whether any collection contains a loss's inputs, with or without its name."""
        key = (self._collector.due_key, name)
        if key not in self._asked:
            names = [f"{each}_input_{n}" for each in (name, UNNAMED) for n in range(_MOST_INPUTS)]
            self._asked[key] = any(
                collection.name == LOSS_INPUTS or any(map(collection.matches, names))
                for collection in self._collector.due
            )
        return self._asked[key]
