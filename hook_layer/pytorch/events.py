"""What happens in a PyTorch training loop, and what is captured when; see `hook_layer.pytorch`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from hook_layer.collections import OPTIMIZER_STEPS, CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.clock import INIT_STEP
from hook_layer.core.earlier_hooks import IDLE_STEPS
from hook_layer.guard import guarded
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.amp import parameters_of, unscaled
from hook_layer.pytorch.calls import ModuleCall, OptimizerCall
from hook_layer.pytorch.criteria import Criteria
from hook_layer.pytorch.loop_counts import MANY_IN_VAIN
from hook_layer.pytorch.losses import LossCapture
from hook_layer.pytorch.meshes import is_inferring_shapes
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.newest_hook import drop_calls, watch_alone
from hook_layer.pytorch.optimizer_state import state_tensors
from hook_layer.pytorch.steps import WITHOUT_TRAINING, Pass, StepBounds, is_recomputing
from hook_layer.pytorch.transforms import is_transformed, outside_of_transforms
from hook_layer.pytorch.watched_functions import BACKWARD, SCALER_STEP

__all__ = ["TorchEvents"]

logger = logging.getLogger("stepwatch")


class TorchEvents(LossCapture):
    """A hook that knows what modules, backward passes and optimisers do.

    Args:
        setup: What the hook is made of.

    Attributes:
        leaves_out: Returns whether no optimizer that was made holds parameters of a model; None
            where not all of them are known.
        on_steps_in_vain: Is called when several steps of optimizers in a row had no gradient, or
            the model was not called for several steps.
        on_others_train: Is called with an optimizer of other parameters that has stepped 20 times
            since the model was called last.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self.leaves_out: Callable[[nn.Module], bool] | None = None
        self.on_steps_in_vain: Callable[[], None] | None = None
        self.on_others_train: Callable[[Optimizer], None] | None = None
        self._num_idle: dict[int, int] = {}  # steps of each optimizer since the model was called
        self._num_gradients = 0
        self._has_optimizer = self._has_begun = False
        self._stepping: ReferenceType[Optimizer] | None = None
        self._with_state: set[int] = set()
        self._collected: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._is_ours: dict[int, tuple[ReferenceType[Optimizer], bool]] = {}

    def _watch_model(self, model: nn.Module) -> None:
        for cache in (self._wanted_modules, self._nothing_due, self._is_ours):
            cache.clear()
        self._has_new_models = True
        watch_alone(self, model)
        if len(self._registered.models) == 1:
            self._watch_loop()
        call = ModuleCall(model, self._on_forward, self._on_compile)
        # Ahead of FSDP's hook, which puts whole parameters in the place of their shards.
        handle = own_hooks.register(
            model.register_forward_pre_hook, call, prepend=True, with_kwargs=True
        )
        self._handles.append(handle)
        self._announce_start()

    def release(self, module: nn.Module) -> None:
        """Watch a model or a loss no more, for a newer hook does; without any model left, close.

        Args:
            module: What the newer hook watches.
        """
        had_models = bool(self._registered.models)
        if not self._registered.remove(module):
            return
        is_over = had_models and not self._registered.models
        logger.info(
            "a newer hook watches this %s; the hook that writes to %s no longer does%s",
            type(module).__name__,
            self._store.uri,
            ", and is closed" if is_over else "",
        )
        if is_over:
            self.close()
        self._let_models_go()
        drop_calls(module, self)

    def _watch_loop(self) -> None:
        self._watch_losses()
        self._handles += [
            SCALER_STEP.listen(self._on_scaler_step),
            BACKWARD.listen(self._on_backward),
            own_hooks.register(
                register_optimizer_step_pre_hook, OptimizerCall(self._on_optimizer_step)
            ),
            own_hooks.register(
                register_optimizer_step_post_hook, OptimizerCall(self._on_optimizer_step_ended)
            ),
        ]

    # Where the hook looks in ---------------------------------------------------------------------

    def _on_forward(self, model: nn.Module, inputs: Any, _: Any) -> None:
        if is_recomputing() or is_transformed(model) or self._leaves_pass_out():
            return
        self._num_others = 0
        self._num_idle.clear()
        kind = self._steps.next_pass(self.mode, model, inputs)
        self._loop.pass_begins(model)
        if kind is Pass.ASIDE:
            return
        self._pass_begins(model)
        if kind is Pass.CONTINUES and self._is_full():
            kind = Pass.BEGINS
        if kind is Pass.BEGINS:
            self._try_to_begin_step()
        elif kind is Pass.BEGINS_ANEW:
            self._begin_anew()
        if not self.is_active:
            self._warn_if_forked()
            return
        if kind is Pass.BEGINS or self._has_new_models:
            self._watch_modules()
        if self._due:
            with outside_of_transforms():
                self._watch_parameters(model)
            self._watch_functions(model)
            self._watch_outputs(model)
        elif kind is Pass.BEGINS:
            self._gradients.unwatch()

    def _leaves_pass_out(self) -> bool:
        """Return whether a pass has inputs of no meaning; then it belongs to no step."""
        is_left_out = is_inferring_shapes()
        self._steps.is_aside |= is_left_out
        return is_left_out

    @guarded("steps")
    def _try_to_begin_step(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._registered.look_for_flat_parts()
            known = self.collection_manager.collections.items()
            self._collected = {n: ((*c.include_regex,), (*c.tensor_names,)) for n, c in known}
            self._join_the_others(" and ".join(self._registered.models.values()))
        self._prepare_collections()
        self._is_training_step = self._steps.is_training
        self.begin_step()
        self._steps.step_begins()
        self._begin_capture()
        stepping = None if self._stepping is None else self._stepping()
        if stepping is not None:  # a step with a closure, which the forward pass is part of
            self._capture_optimizer_state(stepping)

    def _begin_capture(self) -> None:
        super()._begin_capture()
        self._num_gradients = 0
        self._loop.recording_begins()
        self._losses_begin()
        self._with_state.clear()

    def start_over(self) -> bool:
        """Forget the models, and the first step, as if none had begun.

        Returns:
            Whether it could: not where that step has ended, or is not known from passes alone.
        """
        num_begun = self.clock.num_steps
        is_open = self._record is not None or not self._is_writer
        is_first = num_begun == 0 or (num_begun == 1 and is_open)
        if not self.is_active or self._steps.knows_optimizers or not is_first:
            return False
        if num_begun:
            self._begin_anew()
            self.clock.count_back()
            self.recorder.discard()
            self.collector.clear()
        # Those of layers have taken some by names that others may have in the model.
        for name, collection in self.collection_manager.collections.items() if num_begun else ():
            patterns, names = self._collected.get(name, ((), ()))
            collection.include_regex, collection.tensor_names = [*patterns], {*names}
        self._forget_models()
        self._steps, self._criteria = StepBounds(), Criteria()
        return True

    def let_go_of_models(self) -> None:
        """End the open step and forget the models: others are watched from now on."""
        self._end_step()
        self._forget_models()
        self._steps, self._criteria = StepBounds(), Criteria()

    @guarded("steps")
    def _begin_anew(self) -> None:
        """Release what was captured of this step."""
        self._gradients.take()
        self.recorder.release()
        self._torch_backend.forget_statistics()
        self._begin_capture()

    @guarded("losses")
    def _on_backward(self, args: tuple[Any, ...], _: None) -> None:
        if is_recomputing():  # a backward pass within one
            return
        self._loop.backward_begins(is_recorded=self._record is not None)
        self._capture_losses_of(args)
        self._written.forget()
        self._scaling.backward_began()
        if not self._awaits_backward():
            # From here on the interpreter has nothing to do: the writer gets it to itself.
            self._step_is_captured()

    def _awaits_backward(self) -> bool:
        """Return whether the backward pass, or what follows it, completes this step."""
        return (
            self._steps.by_optimizer
            or self._gradients.num_watched > 0
            or CollectionKeys.OPTIMIZER_VARIABLES in self._due_key
        )

    @guarded("steps")
    def _on_backward_end(self) -> None:
        self._is_captured &= not self._has_optimizer  # another one is going to step
        self._capture_gradients()
        self._send_statistics()
        if self._has_optimizer or self._steps.by_optimizer:
            return
        if self._num_gradients >= self._gradients.num_watched:
            self._step_is_captured()

    @guarded("steps")
    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        self._loop.step_begins(optimizer)
        if not self._trains_our_parameters(optimizer):
            return
        self._has_optimizer = True
        self._losses_end()
        self._stepping = ref(optimizer)
        self._steps.optimizer_steps(optimizer)
        if self.step == INIT_STEP:
            self._warn_if_unseen(optimizer)
        elif self._record is not None and not has_closure:
            self._is_captured = False  # whatever else has stepped
            self._capture_gradients(optimizer)
            self._capture_optimizer_state(optimizer)

    @guarded("steps")
    def note_optimizer(self, optimizer: Optimizer) -> bool:
        """Note that an optimiser was made: another training may begin with it.

        What others compute is not captured then, until a model of this hook is called again.

        Returns:
            Whether another training begins: it trains parameters, none of them of this hook's
            models, which have been trained before.
        """
        # It may get parameters yet, so what it has now is not kept.
        if not self.is_active or self.step == INIT_STEP or self._has_parameters_of(optimizer):
            return False
        self._others_begin()
        is_of_modules = any(isinstance(p, nn.Parameter) for p in parameters_of(optimizer))
        return self._has_optimizer and is_of_modules

    @guarded("steps")
    def _on_optimizer_stepped(self, optimizer: Optimizer) -> None:
        self._stepping = None
        if not self._steps.knows_optimizers and not self._trains_our_parameters(optimizer):
            self._steps.others_stepped()
            self._others_stepped()
            if self._num_others == IDLE_STEPS and self.on_others_train is not None:
                self.on_others_train(optimizer)
            return
        if self._steps.optimizer_stepped(optimizer) and self._record is not None:
            self._gradients.step_ends()
            self._step_is_captured()

    @guarded("steps")
    def _on_optimizer_step_ended(self, optimizer: Optimizer, _: bool) -> None:
        is_ours, steps = self._trains_our_parameters(optimizer), self._loop
        steps.step_ended(optimizer, is_ours=is_ours, is_recorded=self._record is not None)
        self._steps.trains_without_gradient = steps.without_gradient >= MANY_IN_VAIN
        num_idle = self._num_idle[id(optimizer)] = self._num_idle.get(id(optimizer), 0) + is_ours
        is_in_vain = MANY_IN_VAIN in (num_idle, steps.without_gradient)
        if is_in_vain and self.step != INIT_STEP and self.on_steps_in_vain is not None:
            self.on_steps_in_vain()
        self._on_optimizer_stepped(optimizer)

    def _on_scaler_step(self, args: tuple[Any, ...], _: Any) -> None:
        # Also where the scaler left the optimiser's step out.
        for optimizer in args:
            if isinstance(optimizer, Optimizer):
                is_ours = self._trains_our_parameters(optimizer)
                self._loop.scaler_stepped(args[0], optimizer, is_ours=is_ours)
                self._on_optimizer_stepped(optimizer)

    # How -----------------------------------------------------------------------------------------

    def _before_end_step(self) -> None:
        if self._record is not None:
            self._capture_gradients()  # of a backward pass that ended with an exception
            self._warn_of_unseen_modules()
            self._capture_optimizer_steps()
            self._send_statistics()
        self._gradients.step_ends()
        self._steps.step_ends()

    @guarded("gradients")
    def _capture_gradients(self, optimizer: Optimizer | None = None) -> None:
        if not self._scaling.is_scaling:
            arrived = self._gradients.take()
            self._num_gradients += len(arrived)
            self._capture_all(arrived | self._found_gradients(optimizer))
        elif optimizer is not None:  # before, their scale is unknown
            arrived = self._gradients.take(parameters_of(optimizer))
            self._num_gradients += len(arrived)
            self._capture_all(unscaled(optimizer, arrived | self._found_gradients(optimizer)))

    def _found_gradients(self, optimizer: Optimizer | None) -> dict[str, Tensor]:
        """Return the gradients that an optimiser is about to use and no backward pass reported."""
        if optimizer is None or self._gradients.all_announced:
            return {}
        return self._gradients.find(self._awaited_gradients(parameters_of(optimizer)))

    @guarded("optimizer variables")
    def _capture_optimizer_state(self, optimizer: Optimizer) -> None:
        is_due = CollectionKeys.OPTIMIZER_VARIABLES in self._due_key
        if is_due and id(optimizer) not in self._with_state:
            self._with_state.add(id(optimizer))
            named = self._registered.all_named_parameters()
            self._capture_all(state_tensors(optimizer, named))

    @guarded("optimizer steps")
    def _capture_optimizer_steps(self) -> None:
        record = self._record
        if record is None or OPTIMIZER_STEPS not in self._due_key:
            return
        if record.mode in WITHOUT_TRAINING:
            return
        models, leaves_out = list(self._registered.models), self.leaves_out
        are_of_others = leaves_out is not None and all(leaves_out(model) for model in models)
        facts = self._loop.facts(are_all_of_others=are_of_others)
        planned = {name: (value, self._plan(name)) for name, value in facts.items()}
        wanted = {name: (value, plan) for name, (value, plan) in planned.items() if plan}
        self.recorder.capture(wanted, is_late=False)

    def _trains_our_parameters(self, optimizer: Optimizer) -> bool:
        key = id(optimizer)
        known = self._is_ours.get(key)
        is_ours = known is not None and known[1]
        if known is None or known[0]() is not optimizer:
            is_ours = self._has_parameters_of(optimizer)
            # By number: optimisers of scripts may have no hash.
            self._is_ours[key] = ref(optimizer), is_ours
        return is_ours

    def _has_parameters_of(self, optimizer: Optimizer) -> bool:
        ours = {id(p) for _, p in self._registered.all_named_parameters()}
        return any(id(p) in ours for p in parameters_of(optimizer))

    def _forget_models(self) -> None:
        self._gradients.unwatch()
        self._forget_calls()
        self._criteria.stop()
        self._stop_modules()
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
