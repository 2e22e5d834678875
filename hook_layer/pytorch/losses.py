"""Which losses the hook for PyTorch captures, under which names; see `hook_layer.pytorch`."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from hook_layer.collections import LOSS_INPUTS, CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.guard import guarded
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.amp import LossScaling
from hook_layer.pytorch.calls import ModuleCall, tensors_in
from hook_layer.pytorch.criteria import Criteria, CriterionCall
from hook_layer.pytorch.functional_losses import UNNAMED, FunctionalLosses, LossCall, outputs_first
from hook_layer.pytorch.loop_counts import LoopCounts
from hook_layer.pytorch.module_capture import ModuleCapture
from hook_layer.pytorch.modules import is_a_key
from hook_layer.pytorch.newest_hook import watch_alone
from hook_layer.pytorch.steps import WITHOUT_TRAINING, is_recomputing
from hook_layer.pytorch.watched_losses import LOSS_FUNCTIONS, WatchedLoss
from hook_layer.pytorch.written_losses import WrittenLosses

__all__ = ["LossCapture"]

_MOST_INPUTS: Final = 4
_MANY_LOSSES: Final = 64
"""Losses of one step from which on its size is looked at, and not at forward passes alone."""
_FEW_OTHERS: Final = 3
_MANY_OTHERS: Final = 40
"""Steps of others' optimisers without a call of a watched model, until what is computed is theirs:
few behind a step that is complete, many in one that is not. A gradient scaler counts them twice."""


@dataclass
class _Newest:
    """The model that was called last: the next loss without a module is taken for its."""

    model: ReferenceType[nn.Module] | None = None


_newest = _Newest()  # an attribute of the class would slow every look-up of its methods


class LossCapture(ModuleCapture):
    """A hook that captures losses: of modules, of functions, and those that a script names.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self._scaling = LossScaling()
        self._functional = FunctionalLosses()
        self._criteria = Criteria()
        self._loop = LoopCounts()
        self._written = WrittenLosses()
        self._met_loss = self._are_unnamed_too = self._has_graph = False
        self._thread = self._num_others = 0
        self._handles: list[Any] = []

    def _watch_losses(self) -> None:
        self._handles += [self._scaling.listen()]
        self._handles += [function.listen(self._on_function) for function in LOSS_FUNCTIONS]

    def release(self, module: nn.Module) -> None:
        """Watch a model or a loss no more."""
        raise NotImplementedError

    def _watch_loss(self, loss: nn.Module) -> None:
        watch_alone(self, loss)
        call = ModuleCall(loss, self._on_loss)
        handle = own_hooks.register(loss.register_forward_hook, call, with_kwargs=True)
        self._handles.append(handle)

    def _pass_begins(self, model: nn.Module) -> None:
        """Note that a model is called: losses that follow in this thread are its."""
        _newest.model = ref(model)
        self._thread = threading.get_ident()
        self._has_graph = torch.is_grad_enabled()
        self._functional.pass_begins()
        self._criteria.forget()
        self._written.forget()

    @guarded("written losses")
    def _watch_outputs(self, model: nn.Module) -> None:
        """Keep what a pass of training that has begun returns, if a loss of it may need that."""
        is_training = self._has_graph and self._steps.is_training and not self._has_compiled
        if is_training and not self._names_losses and self._asks_for_inputs(UNNAMED):
            self._written.watch(model, self._on_returned)

    def _losses_begin(self) -> None:
        """Forget the losses of the step before."""
        self._met_loss = False
        self._functional.forget()
        is_due = bool(self._due) and torch.is_grad_enabled()
        for loss in self._criteria.step_begins(is_due=is_due):
            if self._registered.add_loss(loss) is not None:
                self._watch_loss(loss)

    # Where the hook looks in ---------------------------------------------------------------------

    @guarded("written losses")
    def _on_returned(self, _: nn.Module, __: Any, outputs: Any) -> None:
        if is_recomputing():
            return
        self._written.note(outputs)

    def _on_loss(self, loss: nn.Module, inputs: Any, outputs: Any) -> None:
        if not self._is_in_thread() or (self._num_others and self._is_elsewhere()):
            return
        if self._is_trained_elsewhere(outputs):
            return
        if self.is_active and not is_recomputing():
            self._capture_loss(self._registered.loss_name(loss), inputs, outputs)

    @guarded("criteria")
    def _on_call(self, module: nn.Module) -> None:
        # Replicas are of one pass of a model that is not theirs, in a thread of their own.
        if not self._due or not is_a_key(module) or getattr(module, "_is_replica", False):
            return
        if module not in self._registered.names and module not in self._registered.losses:
            self._criteria.begin(module)

    @guarded("criteria")
    def _on_criterion(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._steps.is_training and not is_recomputing() and self._is_newest():
            self._criteria.note(module, inputs, outputs)

    @guarded("losses")
    def _capture_loss(self, name: str, inputs: Any, outputs: Any) -> None:
        if self._steps.leaves_losses_out(self.mode):
            self._loop.loss_aside()
            return
        self._met_loss = True
        self._forget_calls()
        if self._due and not self._ends_full_step(name):
            self._capture_named(name, inputs, outputs)

    @guarded("losses")
    def _on_function(self, told: tuple[WatchedLoss, Any, Any], value: Any) -> None:
        if self._steps.is_aside:
            self._loop.loss_aside()
        if not self._due or is_recomputing() or not self._is_newest() or self._is_elsewhere():
            return
        if self._is_trained_elsewhere(value):
            return
        call = told[0], told[0].arguments(*told[1:])
        if self._steps.is_training:
            with_inputs = self._asks_for_inputs(call[0].class_name, UNNAMED)
            self._functional.note(call, value, with_inputs=with_inputs)
        elif self.mode in WITHOUT_TRAINING and not self._steps.leaves_losses_out(self.mode):
            with_inputs = self._asks_for_inputs(call[0].class_name)
            found = self._functional.of_validation(call, value, with_inputs=with_inputs)
            if found is not None:
                self._capture_call(found)

    @guarded("losses")
    def _capture_losses_of(self, args: tuple[Any, ...]) -> None:
        """Capture what a backward pass is about to start from, if it has no name yet."""
        is_named = self._names_losses and not self._are_unnamed_too
        if not self._due or is_named or self._met_loss or not self._is_newest():
            return
        if self._is_elsewhere() or self._steps.leaves_losses_out(self.mode):
            return
        if self._is_trained_elsewhere(args[:1]):
            return
        for loss in tensors_in(args[:1]):
            if loss.numel() == 1:
                self._capture_trained(loss)

    def _capture_trained(self, loss: Tensor) -> None:
        """Capture a loss as that of the function that computed it, or as one without a name."""
        scale = self._scaling.scale_of(loss)
        call = self._functional.of_training(loss, scale)
        is_named = call is not None and call.name != UNNAMED
        criteria = self._criteria.of_training(loss, scale, is_other=is_named)
        if criteria is not None:
            for found in criteria:
                self._capture_criterion(found)
            return
        if call is not None and is_named:
            self._capture_call(call)
        if not self._names_losses and (not is_named or self._are_unnamed_too):
            inputs: Any = () if call is None or is_named else call.inputs
            if call is None and not self._num_met.get(f"{UNNAMED}_output_"):
                inputs = self._written.inputs_of(loss)
            self._capture_named(UNNAMED, inputs, self._scaling.unscaled_loss(loss))

    def _capture_criterion(self, found: CriterionCall) -> None:
        """Capture a call of a module that is watched from the next step on."""
        self._capture_named(found.name, found.take_inputs(), found.outputs)

    def _asks_for_inputs(self, *names: str) -> bool:
        """Return whether anybody wants what a loss of one of these names compares."""
        wanted = [f"{name}_input_{number}" for name in names for number in range(_MOST_INPUTS)]
        return any(
            collection.name == LOSS_INPUTS or collection.matches(name)
            for collection in self._due
            for name in wanted
        )

    # How -----------------------------------------------------------------------------------------

    def _record_loss(self, name: str, value: Tensor) -> None:
        self._names_losses = True
        self._capture_loss(name, (), value)

    def _capture_call(self, call: LossCall) -> None:
        self._capture_named(call.name, call.inputs, call.value)

    def _capture_named(self, name: str, inputs: Any, outputs: Any) -> None:
        in_order = outputs_first(name, tensors_in(inputs))
        compared = self._numbered(f"{name}_input_", in_order)
        self._capture_all(compared, member_of=(LOSS_INPUTS,))
        losses = self._numbered(f"{name}_output_", outputs)
        self._capture_all(losses, member_of=(CollectionKeys.LOSSES,))

    def _ends_full_step(self, name: str) -> bool:
        """End the step if it holds too much, and many of these losses; say whether it did."""
        if self._num_met.get(f"{name}_output_", 0) < _MANY_LOSSES or not self._is_full():
            return False
        self._end_step()
        self.collector.clear()
        return True

    def _is_elsewhere(self) -> bool:
        """Return whether another model is trained by now, and losses are its.

        Behind the first optimiser of others that steps the loss of this model may still come: in a
        GAN it is computed of the other's outputs.
        """
        is_complete = self._is_captured or self.mode in WITHOUT_TRAINING
        return self._num_others >= (_FEW_OTHERS if is_complete else _MANY_OTHERS)

    def _is_trained_elsewhere(self, outputs: Any) -> bool:
        """Return whether a loss trains another model while this one is validated.

        Whatever is computed of a pass without gradients has none either. Not where somebody tells
        of steps: a trainer's may begin without any pass.
        """
        if self._has_graph or self.mode not in WITHOUT_TRAINING or not torch.is_grad_enabled():
            return False
        if self._steps.knows_optimizers:
            return False
        return any(value.requires_grad for value in tensors_in(outputs))

    def _others_stepped(self) -> None:
        """Note that an optimiser has stepped that trains nothing of this hook's models."""
        self._num_others += 1
        is_complete = self._is_captured or self.mode in WITHOUT_TRAINING
        if self._num_others == _MANY_OTHERS and is_complete and not self._saw_late_tensors:
            self._end_step()
            self.collector.clear()
            self._let_models_go()

    def _forget_calls(self) -> None:
        """Forget what a loss could be of, and which calls training goes by."""
        self._functional.forget_all()
        self._criteria.forget()
        self._written.forget()

    def _losses_end(self) -> None:
        """Forget what was computed up to now: no loss of this step is to come."""
        self._functional.forget()
        self._written.forget()

    def _let_models_go(self) -> None:
        """Keep no model alive; one that is called again begins a step, and is watched as before."""
        self._forget_calls()
        self._gradients.unwatch()
        self._modules.watch_only(frozenset())
        for known in (self._wanted_modules, self._nothing_due, self._met_models):
            known.clear()

    def _others_begin(self) -> None:
        """Note that the training of another model begins."""
        self._num_others = max(self._num_others, _FEW_OTHERS)

    def _is_in_thread(self) -> bool:
        """Return whether this thread has called a model last; others may train something else."""
        return self._thread in (0, threading.get_ident())

    def _is_newest(self) -> bool:
        """Return whether the model that was called last is one of this hook, or part of one.

        Not so in other threads, which may train something else.
        """
        if threading.get_ident() != self._thread:
            return False
        newest = None if _newest.model is None else _newest.model()
        return newest in self._registered.names
