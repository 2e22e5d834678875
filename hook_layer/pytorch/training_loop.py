"""Follows a training loop: forward passes, backward passes and optimizer steps."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any
from weakref import ReferenceType, ref

from torch import nn
from torch.optim.optimizer import (
    Optimizer,
)

from hook_layer.configuration.collections import OPTIMIZER_STEPS, CollectionKeys
from hook_layer.core.earlier_hooks import IDLE_STEPS
from hook_layer.core.hook import BaseHook
from hook_layer.core.state import Part
from hook_layer.guard import guarded
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import (
    STEP_BEGINS,
    STEP_ENDED,
    ModuleCall,
    ModuleCallback,
    ModuleHooks,
)
from hook_layer.pytorch.loop_counts import MANY_WITHOUT_EFFECT, LoopCounts
from hook_layer.pytorch.losses import MANY_OTHERS, LossTracer
from hook_layer.pytorch.meshes import is_inferring_shapes
from hook_layer.pytorch.newest_hook import drop_calls, watch_alone
from hook_layer.pytorch.ranks import TorchRanks
from hook_layer.pytorch.steps import Pass, StepBounds, StepSize, is_recomputing
from hook_layer.pytorch.torch_capture import TorchCapture
from hook_layer.pytorch.transforms import is_transformed
from hook_layer.pytorch.watched_functions import BACKWARD, SCALER_STEP
from hook_layer.weak_method import WeakMethod

__all__ = ["LoopObserver", "TrainingLoop"]

logger = logging.getLogger("stepwatch")


class LoopObserver:
    """Gets notifications about the optimizers of a script; the base class ignores them."""

    def leaves_out(self, models: Iterable[nn.Module]) -> bool:  # noqa: ARG002
        """Return whether the script's optimizers hold no parameters of any of these models."""
        return False

    def on_steps_without_effect(self) -> None:
        """Handle several consecutive steps without a gradient, or without a call of the model."""

    def on_training_in_evaluation(self) -> None:
        """Note that an optimizer of our parameters has stepped in a mode of evaluation."""

    def on_others_train(self, optimizer: Optimizer) -> None:
        """Handle 20 steps of an optimizer of other parameters since the last forward pass."""


class TrainingLoop(Part):
    """Follows the training loop of registered models.

    Attributes:
        observer: Gets notifications about the optimizers of the script.
        on_outputs: Is called with a model, its inputs and outputs at the end of each pass of a
            saved step, also of compiled models.
    """

    def __init__(
        self,
        hook: BaseHook,
        ranks: TorchRanks,
        capture: TorchCapture,
        losses: LossTracer,
        *,
        counts: LoopCounts,
        size: StepSize,
    ) -> None:
        super().__init__(hook.state)
        self.observer = LoopObserver()
        self.on_outputs: WeakMethod[ModuleCallback] | None = None
        self._hook = ref(hook)  # it owns this object
        self._ranks = ranks
        self._clock = hook.clock
        self._session = hook.session
        self._stop_listener = hook.stop_listener
        self._capture = capture
        self._losses = losses
        self._counts = counts
        self._size = size
        self._modes = capture.modes
        self._registered = capture.registered
        self._collector = capture.collector
        self._recorder = capture.recorder
        self._pass_end = ModuleHooks(self._on_pass_end, always_call=True)
        self._handles: list[Any] = []
        self._listening: list[Any] = []
        self._num_idle: dict[int, int] = {}  # steps of each optimizer since the model was called
        self._is_ours: dict[int, tuple[ReferenceType[Optimizer], bool]] = {}
        self._stepping: ReferenceType[Optimizer] | None = None
        self._has_optimizer = self._has_begun = self._has_warned_of_fork = False
        self._has_warned_of_unseen_steps = False
        self._collected: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._recorder.before_end(self._before_end)
        # A closed hook may stay alive, e.g. in `get_hook`, but must release models and optimizers.
        self.state.when_closed(self.forget_models)

    # Models --------------------------------------------------------------------------------------

    def watch_model(self, model: nn.Module, on_pass: ModuleCallback | None = None) -> None:
        """Follow a registered model; call `on_pass`, by default `on_forward`, before its passes."""
        self._capture.add_model()
        self._is_ours.clear()
        watch_alone(self, model)
        if len(self._registered.models) == 1:
            self._watch_optimizers()
        call = ModuleCall(model, on_pass or self.on_forward, self._on_compile)
        # It runs before FSDP's hook, which replaces shards by whole parameters.
        handle = own_hooks.register(
            model.register_forward_pre_hook, call, prepend=True, with_kwargs=True
        )
        self._handles.append(handle)
        if self._session.all_write:
            self._ranks.announce_start(self._session.chief_start)

    def keep(self, handles: Iterable[Any]) -> None:
        """Remove these torch hooks, too, when the models are forgotten."""
        self._handles += handles

    def watch_loss(self, loss: nn.Module) -> None:
        """Capture the output of a registered loss module."""
        watch_alone(self, loss)
        if self._listening:
            self._losses.listen(is_on=True)

    def release(self, module: nn.Module) -> None:
        """Release a model or loss that a newer hook watches; close without any model left."""
        had_models = bool(self._registered.models)
        if not self._registered.remove(module):
            return
        is_over = had_models and not self._registered.models
        logger.info(
            "a newer hook watches this %s; the hook that writes to %s no longer does%s",
            type(module).__name__,
            self._session.store.uri,
            ", and is closed" if is_over else "",
        )
        if is_over:
            hook = self._hook()
            if hook is not None:
                hook.close()
        self._release_models()
        for owner in (self, self._capture, self._losses):
            drop_calls(module, owner)

    def _watch_optimizers(self) -> None:
        self._handles += [
            # Always: `scaler.scale(model(inputs))` looks up the method before the model is called.
            self._losses.scaling.listen(),
            SCALER_STEP.listen(self._on_scaler_step),
            STEP_BEGINS.listen(self._on_optimizer_step),
            STEP_ENDED.listen(self._on_optimizer_step_ended),
        ]

    def start_over(self) -> bool:
        """Forget the models and the first step, if that step is still open and passes define steps.

        Returns:
            Whether the hook started over.
        """
        clock = self._clock
        is_open = self._recorder.record is not None or not self._session.is_writer
        is_first = clock.num_steps == 0 or (clock.num_steps == 1 and is_open)
        if not self.is_active or self._modes.steps.knows_optimizers or not is_first:
            return False
        if clock.num_steps:
            self._begin_anew()
            clock.count_back()
            self._recorder.discard()
            self._collector.clear()
            # Layer collections have stored names that may mean other modules in the next model.
            for name, collection in self._collector.manager.collections.items():
                patterns, names = self._collected.get(name, ((), ()))
                collection.include_regex, collection.tensor_names = [*patterns], {*names}
        self.forget_models()
        return True

    def release_models(self) -> None:
        """End the open step and forget the models, before other models are watched."""
        self._recorder.end_step()
        self.forget_models()

    def forget_models(self) -> None:
        """Forget all models and losses, and the state of their steps."""
        self._losses.stop()
        self._capture.stop()
        self._pass_end.stop()
        self._stop_listening()
        while self._handles:
            self._handles.pop().remove()
        self._registered.forget()
        self._is_ours.clear()
        self._modes.steps = StepBounds()

    def _release_models(self) -> None:
        """Release all models; a later call of one begins a step, and watches it as before."""
        self._stop_looking()
        self._losses.stop_listening()  # even if errors have disabled listening to losses
        self._losses.forget()
        self._capture.release_models()

    # Forward passes ------------------------------------------------------------------------------

    def on_forward(self, model: nn.Module, inputs: Any, _: Any) -> None:
        """Begin a step if a forward pass begins one, and watch the pass."""
        if is_recomputing() or is_transformed(model) or self._ignores_pass():
            return
        turn, modes = self._losses.turn, self._modes
        turn.num_others = 0
        self._num_idle.clear()
        kind = modes.steps.next_pass(self._clock.mode, model, inputs)
        self._counts.pass_begins(model)
        if kind is Pass.OUTSIDE_STEPS:
            self._listen(is_on=self._counts.may_be_validation)
            return
        turn.begin_pass(model)
        if kind is Pass.CONTINUES and self._size.is_full():
            kind = Pass.BEGINS
        if kind is Pass.BEGINS:
            self._begin_step()
        elif kind is Pass.BEGINS_ANEW:
            self._begin_anew()
        if not self.is_active:
            self._warn_if_forked()
            return
        if kind is Pass.BEGINS or self._capture.has_new_models:
            self._capture.watch_modules()
        if self._collector.due:
            self._look_at_pass(model)
        elif self._listening:
            self._stop_looking()

    def _look_at_pass(self, model: nn.Module) -> None:
        self._listen(is_on=True)
        self._capture.begin_pass(model)
        self._losses.begin_pass()
        if self.on_outputs is not None or self._capture.awaits_pass_end:
            self._pass_end.watch_only({model})

    def _stop_looking(self) -> None:
        """Remove the listeners and hooks of a saved step."""
        self._listen(is_on=False)
        self._capture.stop_watching()
        self._pass_end.watch_only(frozenset())

    def _ignores_pass(self) -> bool:
        """Return whether a pass only infers shapes; it then belongs to no step."""
        is_ignored = is_inferring_shapes()
        self._modes.steps.is_outside_steps |= is_ignored
        return is_ignored

    @guarded("modules")
    def _on_pass_end(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        if is_recomputing():
            return
        if outputs is None:  # torch also calls the hooks of a pass that raised
            self._capture.end_pass()
            return
        self._pass_end.watch_only(frozenset())
        self._capture.end_pass()
        on_outputs = None if self.on_outputs is None else self.on_outputs()
        if on_outputs is not None:
            on_outputs(model, inputs, outputs)

    @guarded("modules")
    def _on_compile(self, _: nn.Module) -> None:
        self._capture.note_compilation()
        self._losses.listen(is_on=bool(self._collector.due))
        if self.on_outputs is not None:
            self._pass_end.keep(set(self._registered.models))

    @guarded("losses")
    def _listen(self, *, is_on: bool) -> None:
        """Start or stop listening to losses and backward passes."""
        self._losses.listen(is_on=is_on)
        if not is_on:
            self._stop_listening()
        elif not self._listening:
            self._listening = [
                BACKWARD.listen(self._on_backward, is_before_call=True),
                BACKWARD.listen(self._on_backward_ended),
            ]

    def _stop_listening(self) -> None:
        while self._listening:
            self._listening.pop().remove()

    def _warn_if_forked(self) -> None:
        """Log once that the model is called in a forked process, where nothing is saved."""
        state = self.state
        if state.is_enabled and not state.is_closed and not self._has_warned_of_fork:
            self._has_warned_of_fork = True
            logger.warning(
                "process %d, a fork, calls a registered model and saves nothing; create a "
                "hook in this process",
                os.getpid(),
            )

    # Steps ---------------------------------------------------------------------------------------

    @guarded("steps")
    def _begin_step(self) -> None:
        if not self._has_begun:
            self._begin_run()
        self._stop_listener.is_training_step = self._modes.is_training
        hook = self._hook()
        if hook is not None:
            hook.begin_step()
        self._modes.steps.step_begins()
        if not (self._collector.due or self._listening):
            return  # most steps
        self._begin_capture()
        stepping = None if self._stepping is None else self._stepping()
        if stepping is not None:  # a step with a closure that contains the forward pass
            self._capture.capture_optimizer_state(stepping)

    def _begin_run(self) -> None:
        self._has_begun = True
        self._registered.look_for_flat_parts()
        known = self._collector.manager.collections.items()
        self._collected = {n: ((*c.include_regex,), (*c.tensor_names,)) for n, c in known}
        models = " and ".join(self._registered.models.values())
        poll_s = self._session.options.stop_poll_s
        self._ranks.agree_on_stop(self._stop_listener, models, poll_s)

    def _begin_capture(self) -> None:
        self._counts.recording_begins()
        self._size.begin_step()
        self._capture.begin_step()
        self._losses.begin_step()

    @guarded("steps")
    def _begin_anew(self) -> None:
        """Release the captured tensors of this step."""
        self._recorder.release()
        self._capture.discard_step()
        self._begin_capture()

    def _before_end(self) -> None:
        if self._recorder.record is not None and self._collector.due:
            self._capture.end_step()
            self._capture.capture_gradients(self._losses.scaling)
            self._capture_counts()
            self._capture.send_statistics()
        self._modes.steps.step_ends()

    @guarded("optimizer steps")
    def _capture_counts(self) -> None:
        record = self._recorder.record
        if record is None or OPTIMIZER_STEPS not in self._collector.due_key:
            return
        if self._modes.is_evaluating:
            return
        are_of_others = self.observer.leaves_out(self._registered.models)
        facts = self._counts.facts(are_all_of_others=are_of_others)
        # Counts always arrive at the end, so they need not keep steps open.
        self._recorder.capture(self._collector.planned(facts), is_late=False)

    # Backward passes -----------------------------------------------------------------------------

    @guarded("losses")
    def _on_backward(self, args: tuple[Any, ...], _: None) -> None:
        if is_recomputing():  # a backward pass within one
            return
        self._capture.end_pass()
        self._capture.gradients.backward_begins()
        self._counts.backward_begins(is_recorded=self._recorder.record is not None)
        self._losses.begin_backward(args)
        if not self._awaits_backward():
            # The interpreter is idle from here on, so the writer can run undisturbed.
            self._recorder.step_is_captured()

    def _awaits_backward(self) -> bool:
        """Return whether the step is complete only after the backward pass, or later."""
        return (
            self._modes.steps.by_optimizer
            or self._capture.overridden.captures_gradients
            or self._capture.gradients.num_watched > 0
            or CollectionKeys.OPTIMIZER_VARIABLES in self._collector.due_key
        )

    @guarded("steps")
    def _on_backward_ended(self, _: tuple[Any, ...], __: Any) -> None:
        if is_recomputing():
            return
        gradients = self._capture.gradients
        gradients.backward_ends()
        if not gradients.have_arrived:
            return
        if self._has_optimizer:  # the optimizer's step follows
            self._recorder.step_continues()
        self._capture.capture_gradients(self._losses.scaling)
        self._capture.send_statistics()
        if self._has_optimizer or self._modes.steps.by_optimizer:
            return
        if gradients.all_announced:
            self._recorder.step_is_captured()

    # Optimizer steps -----------------------------------------------------------------------------

    @guarded("steps")
    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        self._counts.step_begins(optimizer)
        if not self._trains_our_parameters(optimizer):
            return
        self._has_optimizer = True
        self._stepping = ref(optimizer)
        self._modes.steps.optimizer_steps(optimizer)
        if self._clock.num_steps == 0:
            self._warn_if_unseen(optimizer)
        if not has_closure:
            self._recorder.step_continues()  # even if other optimizers have stepped
        if not self._collector.due:
            return
        self._losses.end_losses()
        if self._recorder.record is None:
            return
        if not has_closure:
            self._capture.capture_gradients(self._losses.scaling, optimizer)
        if not has_closure or self._modes.steps.begins_before_closure:
            self._capture.capture_optimizer_state(optimizer)

    @guarded("steps")
    def _on_optimizer_step_ended(self, optimizer: Optimizer, _: bool) -> None:
        is_ours, counts = self._trains_our_parameters(optimizer), self._counts
        is_saved = bool(self._collector.due) and self._recorder.record is not None
        counts.step_ended(optimizer, is_ours=is_ours, is_recorded=is_saved)
        self._modes.steps.trains_without_gradient = counts.without_gradient >= MANY_WITHOUT_EFFECT
        num_idle = self._num_idle[id(optimizer)] = self._num_idle.get(id(optimizer), 0) + is_ours
        is_without_effect = MANY_WITHOUT_EFFECT in (num_idle, counts.without_gradient)
        if is_without_effect and self._has_begun:
            self.observer.on_steps_without_effect()
        if is_ours and self._modes.is_evaluating and not counts.without_gradient:
            self.observer.on_training_in_evaluation()
        self._on_optimizer_stepped(optimizer, is_ours=is_ours)

    def _on_scaler_step(self, args: tuple[Any, ...], _: Any) -> None:
        # This also runs if the scaler skipped the optimizer's step.
        for optimizer in args:
            if isinstance(optimizer, Optimizer):
                is_ours = self._trains_our_parameters(optimizer)
                self._counts.scaler_stepped(args[0], optimizer, is_ours=is_ours)
                self._on_optimizer_stepped(optimizer, is_ours=is_ours)

    @guarded("steps")
    def _on_optimizer_stepped(self, optimizer: Optimizer, *, is_ours: bool) -> None:
        self._stepping = None
        steps = self._modes.steps
        if not steps.knows_optimizers and not is_ours:
            steps.others_stepped()
            self._others_stepped(optimizer)
        elif steps.optimizer_stepped(optimizer) and self._recorder.record is not None:
            self._recorder.step_is_captured()

    def _others_stepped(self, optimizer: Optimizer) -> None:
        """Note a step of an optimizer that trains no parameters of this hook's models."""
        turn, recorder = self._losses.turn, self._recorder
        turn.num_others += 1
        is_complete = recorder.is_captured or self._modes.is_evaluating
        if turn.num_others == MANY_OTHERS and is_complete and not recorder.saw_late_tensors:
            recorder.end_step()
            self._collector.clear()
            self._release_models()
        if turn.num_others == IDLE_STEPS:
            self.observer.on_others_train(optimizer)

    @guarded("steps")
    def note_optimizer(self, optimizer: Optimizer) -> bool:
        """Handle a new optimizer, which may belong to another training.

        If so, tensors are not captured until a model of this hook is called again.

        Returns:
            Whether another training begins: this hook's models have trained before, and the
            optimizer trains none of their parameters.
        """
        # Its parameters are not cached, because more may be added.
        has_begun = self._clock.num_steps > 0
        if not self.is_active or not has_begun or self._has_parameters_of(optimizer):
            return False
        self._losses.turn.others_begin()
        is_of_modules = any(isinstance(p, nn.Parameter) for p in parameters_of(optimizer))
        return self._has_optimizer and is_of_modules

    def _trains_our_parameters(self, optimizer: Optimizer) -> bool:
        key = id(optimizer)
        known = self._is_ours.get(key)
        is_ours = known is not None and known[1]
        if known is None or known[0]() is not optimizer:
            is_ours = self._has_parameters_of(optimizer)
            # Keyed by id, because optimizers of scripts may not be hashable.
            self._is_ours[key] = ref(optimizer), is_ours
        return is_ours

    def _has_parameters_of(self, optimizer: Optimizer) -> bool:
        ours = {id(p) for _, p in self._registered.all_named_parameters()}
        return any(id(p) in ours for p in parameters_of(optimizer))

    def _warn_if_unseen(self, optimizer: Optimizer) -> None:
        """Log once that a model trains without forward passes that the hook sees."""
        if self._has_warned_of_unseen_steps:
            return
        if any(parameter.grad is not None for parameter in parameters_of(optimizer)):
            self._has_warned_of_unseen_steps = True
            logger.warning(
                "the registered model trains, but the hook sees no forward pass and saves "
                "nothing. If it was compiled and called before registration, call "
                "torch.compiler.reset() once."
            )
