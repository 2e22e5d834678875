"""What happens in a PyTorch training loop, and what is captured when; see `hook_layer.pytorch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from hook_layer.collections import CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.guard import guarded
from hook_layer.pytorch.amp import LossScaling, parameters_of, unscaled
from hook_layer.pytorch.calls import ModuleCall, optimizer_call, tensors_in
from hook_layer.pytorch.capturing import TorchCapture
from hook_layer.pytorch.functional_losses import inputs_of
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.optimizer_state import state_tensors
from hook_layer.pytorch.steps import Pass, StepBounds, is_recomputing
from hook_layer.pytorch.watched_functions import BACKWARD, SCALER_STEP
from hook_layer.recorder import INIT_STEP

__all__ = ["TorchEvents"]

_LOSS_PREFIX = "Loss_output_"
_LOSS_INPUTS = ("Loss_input_0", "Loss_input_1")


@dataclass
class _Newest:
    """The model that was called last: the next loss without a module is taken for its."""

    model: ReferenceType[nn.Module] | None = None


_newest = _Newest()  # an attribute of the class would slow every look-up of its methods


class TorchEvents(TorchCapture):
    """A hook that knows what modules, backward passes and optimisers do.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self._steps = StepBounds()
        self._scaling = LossScaling()
        self._num_gradients = 0
        self._met_loss = self._names_losses = self._has_optimizer = self._has_begun = False
        self._stepping: ReferenceType[Optimizer] | None = None
        self._with_state: set[int] = set()
        self._is_ours: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._handles: list[Any] = []

    def _watch_model(self, model: nn.Module) -> None:
        for cache in (self._wanted_modules, self._nothing_due, self._is_ours):
            cache.clear()
        self._has_new_models = True
        if len(self._registered.models) == 1:
            self._watch_loop()
        call = ModuleCall(model, self._on_forward, self._on_compile)
        # Ahead of FSDP's hook, which puts whole parameters in the place of their shards.
        self._handles.append(model.register_forward_pre_hook(call, prepend=True, with_kwargs=True))
        self._announce_start()

    def _watch_loop(self) -> None:
        self._handles += [
            self._scaling.listen(),
            SCALER_STEP.listen(self._on_scaler_step),
            BACKWARD.listen(self._on_backward),
            register_optimizer_step_pre_hook(optimizer_call(self._on_optimizer_step)),
            register_optimizer_step_post_hook(optimizer_call(self._on_optimizer_stepped)),
        ]

    def _watch_loss(self, loss: nn.Module) -> None:
        call = ModuleCall(loss, self._on_loss)
        self._handles.append(loss.register_forward_hook(call, with_kwargs=True))

    # Where the hook looks in ---------------------------------------------------------------------

    def _on_forward(self, model: nn.Module, inputs: Any, _: Any) -> None:
        if is_recomputing():
            return
        kind = self._steps.next_pass(self.mode, model, inputs)
        if kind is Pass.ASIDE:
            return
        _newest.model = ref(model)
        if kind is Pass.CONTINUES and self._is_full():
            kind = Pass.BEGINS
        if kind is Pass.BEGINS:
            self._try_to_begin_step()
        if not self.is_active:
            self._warn_if_forked()
            return
        if kind is Pass.BEGINS or self._has_new_models:
            self._watch_modules()
        if self._due:
            self._watch_parameters(model)
        elif kind is Pass.BEGINS:
            self._gradients.unwatch()

    @guarded("steps")
    def _try_to_begin_step(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._join_the_others(" and ".join(self._registered.models.values()))
        self._prepare_collections()
        self._is_training_step = self._steps.is_training
        self._begin_step()
        self._begin_capture()
        self._steps.step_begins()
        self._num_gradients = 0
        self._met_loss = False
        self._with_state.clear()
        stepping = None if self._stepping is None else self._stepping()
        if stepping is not None:  # a step with a closure, which the forward pass is part of
            self._capture_optimizer_state(stepping)

    @guarded("modules")
    def _on_module_forward(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._due and not self._steps.is_aside and not is_recomputing():
            name = self._registered.names[module]
            named = self._numbered(f"{name}_input_", inputs)
            self._capture_all(named | self._numbered(f"{name}_output_", outputs))

    def _on_loss(self, loss: nn.Module, inputs: Any, outputs: Any) -> None:
        if self.is_active and not is_recomputing():
            self._capture_loss(self._registered.loss_name(loss), inputs, outputs)

    @guarded("losses")
    def _capture_loss(self, name: str, inputs: Any, outputs: Any) -> None:
        if self._steps.leaves_losses_out(self.mode):
            return
        self._met_loss = True
        if self._due:
            self._capture_all(self._numbered(f"{name}_input_", inputs))
            losses = self._numbered(f"{name}_output_", outputs)
            self._capture_all(losses, member_of=(CollectionKeys.LOSSES,))

    @guarded("losses")
    def _on_backward(self, args: tuple[Any, ...], _: None) -> None:
        if is_recomputing():  # a backward pass within one
            return
        is_named = self._met_loss or self._names_losses or not self._is_newest()
        if self._due and not is_named and not self._steps.leaves_losses_out(self.mode):
            scalars = [tensor for tensor in tensors_in(args[:1]) if tensor.numel() == 1]
            losses = [self._scaling.unscaled_loss(tensor) for tensor in scalars]
            named = self._numbered(_LOSS_PREFIX, losses)
            self._capture_all(named, member_of=(CollectionKeys.LOSSES,))
            if f"{_LOSS_PREFIX}0" in named:
                self._capture_inputs_of(scalars[0])
        self._scaling.backward_began()
        if not self._awaits_backward():
            # From here on the interpreter has nothing to do: the writer gets it to itself.
            self._step_is_captured()

    def _capture_inputs_of(self, loss: Tensor) -> None:
        if any(c.matches(name) for c in self._due for name in _LOSS_INPUTS):
            found = inputs_of(loss, self._scaling.scale_of(loss))
            self._capture_all({_LOSS_INPUTS[number]: found[number] for number in found})

    def _is_newest(self) -> bool:
        """Tell whether the model that was called last is one of this hook, or part of one."""
        newest = None if _newest.model is None else _newest.model()
        return newest in self._registered.names

    def _awaits_backward(self) -> bool:
        """Tell whether the backward pass, or what follows it, completes this step."""
        return (
            self._steps.by_optimizer
            or self._gradients.num_watched > 0
            or CollectionKeys.OPTIMIZER_VARIABLES in self._due_key
        )

    @guarded("steps")
    def _on_backward_end(self) -> None:
        self._is_captured &= not self._has_optimizer  # another one is going to step
        self._capture_gradients()
        if self._has_optimizer or self._steps.by_optimizer:
            return
        if self._num_gradients >= self._gradients.num_watched:
            self._step_is_captured()

    @guarded("steps")
    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        if not self._trains_our_parameters(optimizer):
            return
        self._has_optimizer = True
        self._stepping = ref(optimizer)
        self._steps.optimizer_steps(optimizer)
        if self.step == INIT_STEP:
            self._warn_if_unseen(optimizer)
        elif self._record is not None and not has_closure:
            self._is_captured = False  # whatever else has stepped
            self._capture_gradients(optimizer)
            self._capture_optimizer_state(optimizer)

    @guarded("steps")
    def _on_optimizer_stepped(self, optimizer: Optimizer, _: bool = False) -> None:
        self._stepping = None
        if not self._steps.by_optimizer and not self._trains_our_parameters(optimizer):
            return
        if self._steps.optimizer_stepped(optimizer) and self._record is not None:
            self._step_is_captured()

    def _on_scaler_step(self, args: tuple[Any, ...], _: Any) -> None:
        # Also where the scaler left the optimiser's step out.
        for optimizer in args:
            if isinstance(optimizer, Optimizer):
                self._on_optimizer_stepped(optimizer)

    # How -----------------------------------------------------------------------------------------

    def save_tensor(
        self,
        tensor_name: str,
        tensor_value: Any,
        collections_to_write: str | Sequence[str] = CollectionKeys.DEFAULT,
    ) -> None:
        """Save a tensor of your own, see `OwnTensors.save_tensor`."""
        losses = CollectionKeys.LOSSES
        self._names_losses |= collections_to_write == losses or losses in collections_to_write
        super().save_tensor(tensor_name, tensor_value, collections_to_write)

    def _record_loss(self, name: str, value: Tensor) -> None:
        self._names_losses = True
        self._capture_loss(name, (), value)

    def _end_step(self) -> None:
        if self._record is not None:
            self._capture_gradients()  # of a backward pass that ended with an exception
            self._warn_of_unseen_modules()
        self._steps.step_ends()
        super()._end_step()

    @guarded("gradients")
    def _capture_gradients(self, optimizer: Optimizer | None = None) -> None:
        if not self._scaling.is_scaling:
            arrived = self._gradients.take()
            self._num_gradients += len(arrived)
            self._capture_all(arrived | self._found_gradients(optimizer))
        elif optimizer is not None:  # before, scaled as they are, they tell nothing
            arrived = self._gradients.take(parameters_of(optimizer))
            self._num_gradients += len(arrived)
            self._capture_all(unscaled(optimizer, arrived | self._found_gradients(optimizer)))

    def _found_gradients(self, optimizer: Optimizer | None) -> dict[str, Tensor]:
        """Return the gradients that an optimiser is about to use, and no backward pass told of."""
        if optimizer is None or self._gradients.all_announced:
            return {}
        return self._gradients.find(self._awaited_gradients(parameters_of(optimizer)))

    @guarded("optimizer variables")
    def _capture_optimizer_state(self, optimizer: Optimizer) -> None:
        is_due = CollectionKeys.OPTIMIZER_VARIABLES in self._due_key
        if is_due and id(optimizer) not in self._with_state:
            self._with_state.add(id(optimizer))
            named = self._registered.all_named_parameters()
            self._capture_all(state_tensors(optimizer, {id(p): name for name, p in named}))

    def _trains_our_parameters(self, optimizer: Optimizer) -> bool:
        known = self._is_ours.get(optimizer)
        if known is None:
            ours = {id(p) for _, p in self._registered.all_named_parameters()}
            known = any(id(p) in ours for p in parameters_of(optimizer))
            self._is_ours[optimizer] = known
        return known

    def _forget_models(self) -> None:
        self._gradients.unwatch()
        self._modules.stop()
        while self._handles:
            self._handles.pop().remove()
        self._registered = RegisteredModules()
        for cache in (self._wanted_modules, self._nothing_due, self._met_models, self._is_ours):
            cache.clear()

    def _detach(self) -> None:
        # Who keeps the closed hook, as `get_hook` does, must not keep models and optimisers.
        self._forget_models()
        self._steps = StepBounds()
        super()._detach()
