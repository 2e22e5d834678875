"""Turns torch's callbacks into the events of a training loop.

It is the only file that does so: forward pre-hooks of the models, hooks of optimizers, and the
functions of torch that report their calls all arrive here.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final
from weakref import ReferenceType, WeakSet, ref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.configuration.collections import OPTIMIZER_STEPS, CollectionKeys
from hook_layer.core import events
from hook_layer.core.earlier_hooks import IDLE_STEPS
from hook_layer.core.hook import BaseHook
from hook_layer.format.modes import WITHOUT_TRAINING
from hook_layer.guard import guarded
from hook_layer.process.process_end import ProcessEnd
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import (
    STEP_BEGINS,
    STEP_ENDED,
    ModuleCall,
    ModuleCallback,
    ModuleHooks,
    drop_calls,
    register_hook,
)
from hook_layer.pytorch.loop_counts import MANY_WITHOUT_EFFECT, has_gradient
from hook_layer.pytorch.loop_state import LoopState, TorchPart
from hook_layer.pytorch.ranks import PIPELINE_MODULE, TorchRanks, is_inferring_shapes
from hook_layer.pytorch.steps import (
    MANY_OTHERS,
    FollowedSteps,
    Pass,
    StepBounds,
    graph_task_id,
    interpreter_stack,
    is_transformed,
    newest,
    outside_of_transforms,
)
from hook_layer.pytorch.watched_functions import BACKWARD, SCALER_SCALE, SCALER_STEP

__all__ = ["TorchEvents"]

logger = logging.getLogger("stepwatch")


class TorchEvents(TorchPart):
    """Follows the training loop of registered models, and emits its events.

    Attributes:
        follows_outputs: Whether the end of each saved pass is an event also in compiled models.
    """

    def __init__(self, hook: BaseHook, loop: LoopState, ranks: TorchRanks) -> None:
        super().__init__(hook, loop)
        self.follows_outputs = False
        self._hook = ref(hook)  # it owns this object
        self._ranks = ranks
        self._clock = hook.clock
        self._session = hook.session
        self._stop_listener = hook.stop_listener
        self._pass_end = ModuleHooks(self._on_pass_end, always_call=True)
        self._handles: list[Any] = []
        self._listening: list[Any] = []
        self._num_idle: dict[int, int] = {}  # steps of each optimizer since the model was called
        self._is_ours: dict[int, tuple[ReferenceType[Optimizer], bool]] = {}
        self._stepping: ReferenceType[Optimizer] | None = None
        self._has_optimizer = self._has_begun = self._has_new_models = False
        self._is_watching = False  # whether a saved step has set listeners and hooks
        self._collected: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.events.subscribe(events.StepEnds, self._capture_counts, "optimizer steps")
        self.events.subscribe(events.StepEnds, self._end_step, "steps")
        # A closed hook may stay alive, e.g. in `get_hook`, but must release models and optimizers.
        self.events.subscribe(events.HookCloses, self.forget_models, "close")

    # Models --------------------------------------------------------------------------------------

    def watch_model(self, model: nn.Module, on_pass: ModuleCallback | None = None) -> None:
        """Follow a registered model; call `on_pass`, by default `on_forward`, before its passes."""
        self.events.emit(events.ModelsChange())
        self._has_new_models = True
        self._is_ours.clear()
        _watch_alone(self, model)
        if len(self._registered.models) == 1:
            self._handles += [
                # Always: scripts look up `scaler.scale` in `scaler.scale(model(inputs))` before.
                SCALER_SCALE.listen(self._loop.scaling.on_scale),
                SCALER_STEP.listen(self._on_scaler_step),
                STEP_BEGINS.listen(self._on_optimizer_step),
                STEP_ENDED.listen(self._on_optimizer_step_ended),
            ]
        call = ModuleCall(model, on_pass or self.on_forward, self._on_compile)
        # It runs before FSDP's hook, which replaces shards by whole parameters.
        handle = register_hook(
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
        _watch_alone(self, loss)
        if self._listening:
            self.events.emit(events.ListeningChanges(is_on=True))

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
        drop_calls(module, self.state)

    def expect(self, optimizers: Iterable[Optimizer]) -> None:
        """Complete the first step when all of these have stepped that train the models."""
        steps = self._loop.steps
        if isinstance(steps, FollowedSteps):
            steps.expect(filter(self._has_parameters_of, optimizers))

    def start_over(self) -> bool:
        """Forget the models and a first step that is open; return whether that was possible."""
        clock = self._clock
        is_open = self._recorder.record is not None or not self._session.is_writer
        is_first = clock.num_steps == 0 or (clock.num_steps == 1 and is_open)
        if not self.is_active or self._loop.steps.knows_optimizers or not is_first:
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

    def forget_models(self, _: events.HookCloses | None = None) -> None:
        """Forget all models and losses, and the state of their steps."""
        self.events.emit(events.ModelsRelease(is_final=True))
        self._pass_end.stop()
        self._stop_listening()
        self._is_watching = False
        while self._handles:
            self._handles.pop().remove()
        self._registered.forget()
        self._is_ours.clear()
        self._loop.steps = StepBounds()

    def _release_models(self) -> None:
        """Release all models; a later call of one begins a step, and watches it as before."""
        self._pause_saving()
        self.events.emit(events.ModelsRelease(is_final=False))

    # Forward passes ------------------------------------------------------------------------------

    def on_forward(self, model: nn.Module, inputs: Any, _: Any) -> None:
        """Begin a step if a forward pass begins one, and watch the pass if the step is saved."""
        # Without calls, because this runs in every step.
        is_ordinary = graph_task_id() == -1 and interpreter_stack() is None
        if not (is_ordinary and PIPELINE_MODULE not in sys.modules) and self._ignores_pass(model):
            return
        loop, owner = self._loop, self._loop.ownership
        owner.num_others = 0
        self._num_idle.clear()
        kind = loop.steps.next_pass(self._clock.mode, model, inputs)
        has_graph = torch.is_grad_enabled()
        loop.counts.num_passes += has_graph
        loop.counts.validated = ref(model) if model.training and not has_graph else None
        if kind is Pass.OUTSIDE_STEPS:
            self._follow_pass(kind, model)
            return
        newest.model, owner.thread, owner.has_graph = ref(model), threading.get_ident(), has_graph
        is_quiet = not (self._is_watching or self._listening or self._has_new_models)
        if kind is Pass.CONTINUES and is_quiet and not self._collector.due:
            return
        if kind is Pass.CONTINUES and loop.size.is_full():
            kind = Pass.BEGINS
        if kind is Pass.BEGINS:
            hook = self._hook()
            if is_quiet and hook is not None and hook.count_unsaved_step():
                loop.steps.step_begins()
                return
        if not self._follow_pass(kind, model):
            self._warn_if_forked()

    @guarded("steps")
    def _follow_pass(self, kind: Pass, model: nn.Module) -> bool:
        """Begin the step that a pass begins, and emit the events of a pass in a saved step."""
        if kind is Pass.OUTSIDE_STEPS:
            self._listen(is_on=self._loop.counts.validated is not None)
            return True
        if kind is Pass.BEGINS:
            self._begin_step()
        elif kind is Pass.BEGINS_ANEW:
            self._begin_anew()
        if self._has_new_models:
            self._has_new_models = False
            self._is_watching = True
            self.events.emit(events.FirstPassBegins())
        elif not self._collector.due and (self._is_watching or self._listening):
            self._pause_saving()
        if self._collector.due:
            self._is_watching = True
            self._listen(is_on=True)
            with outside_of_transforms():
                self.events.emit(events.PassBegins(model))
            if self.follows_outputs or not self._loop.has_compiled:
                self._pass_end.watch_only({model})
        return True

    def _pause_saving(self) -> None:
        """Remove the listeners and hooks of a saved step."""
        self._is_watching = False
        self._listen(is_on=False)
        self.events.emit(events.SavingPauses())
        self._pass_end.watch_only(frozenset())

    def _ignores_pass(self, model: nn.Module) -> bool:
        """Return whether a pass is repeated, transformed, or only infers shapes."""
        if graph_task_id() != -1 or is_transformed(model):
            return True
        is_ignored = is_inferring_shapes()  # it then belongs to no step
        self._loop.steps.is_outside_steps |= is_ignored
        return is_ignored

    @guarded("modules")
    def _on_pass_end(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        if graph_task_id() != -1:
            return
        if outputs is not None:  # torch also calls the hooks of a pass that raised
            self._pass_end.watch_only(frozenset())
        self.events.emit(events.PassEnds(model, inputs, outputs))

    @guarded("modules")
    def _on_compile(self, _: nn.Module) -> None:
        self._loop.has_compiled = True
        self.events.emit(events.ModelCompiles())
        if self.follows_outputs:
            self._pass_end.keep(set(self._registered.models))

    def _listen(self, *, is_on: bool) -> None:
        """Start or stop listening to losses and backward passes."""
        if is_on or self._listening:
            self.events.emit(events.ListeningChanges(is_on))
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
        if state.is_enabled and not state.is_closed and state.is_forked:
            self.failures.warn_once(
                "process %d, a fork, calls a registered model and saves nothing; create a "
                "hook in this process",
                os.getpid(),
            )

    # Steps ---------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        if not self._has_begun:
            self._begin_run()
        self._stop_listener.is_training_step = self._loop.steps.is_training
        hook = self._hook()
        if hook is not None:
            hook.begin_step()
        self._loop.steps.step_begins()
        if self._collector.due:
            # With an optimizer, the step is in its closure, which contains the forward pass.
            self._begin_capture(None if self._stepping is None else self._stepping())

    def _begin_run(self) -> None:
        self._has_begun = True
        self._registered.find_flat_parts()
        known = self._collector.manager.collections.items()
        self._collected = {n: ((*c.include_regex,), (*c.tensor_names,)) for n, c in known}
        models = " and ".join(self._registered.models.values())
        poll_s = self._session.options.stop_poll_s
        self._ranks.agree_on_stop(self._stop_listener, models, poll_s)

    def _begin_capture(self, optimizer: Optimizer | None = None) -> None:
        self._loop.counts.recording_begins()
        self._loop.norms.begin_step()
        self._loop.size.begin_step()
        self.events.emit(events.StepBegins(optimizer))

    @guarded("steps")
    def _begin_anew(self) -> None:
        """Release the captured tensors of this step."""
        self._recorder.release()
        self.events.emit(events.StepRestarts())
        self._begin_capture()

    def _end_step(self, _: events.StepEnds) -> None:
        self._loop.steps.step_ends()

    def _capture_counts(self, _: events.StepEnds) -> None:
        is_due = OPTIMIZER_STEPS in self._collector.due_key
        if self._recorder.record is None or not is_due or self._clock.is_evaluating:
            return
        are_of_others = self._loop.observer.leaves_out(self._registered.models)
        facts = self._loop.counts.facts(are_all_of_others=are_of_others) | self._loop.norms.facts()
        # Counts always arrive at the end, so they need not keep steps open.
        self._recorder.capture(self._collector.planned(facts), is_late=False)

    # Backward passes -----------------------------------------------------------------------------

    @guarded("losses")
    def _on_backward(self, args: tuple[Any, ...], _: None) -> None:
        if graph_task_id() != -1:  # a backward pass within one
            return
        self._loop.gradients.backward_begins()
        self._loop.counts.backward_begins(is_recorded=self._recorder.record is not None)
        self.events.emit(events.BackwardBegins(args))
        if not self._awaits_backward():
            # The interpreter is idle from here on, so the writer can run undisturbed.
            self._recorder.step_is_captured()

    def _awaits_backward(self) -> bool:
        """Return whether the step is complete only after the backward pass, or later."""
        return (
            self._loop.steps.by_optimizer
            or self._loop.overridden.captures_gradients
            or bool(self._loop.gradients.watched)
            or CollectionKeys.OPTIMIZER_VARIABLES in self._collector.due_key
        )

    @guarded("steps")
    def _on_backward_ended(self, _: tuple[Any, ...], __: Any) -> None:
        if graph_task_id() != -1:
            return
        gradients = self._loop.gradients
        gradients.backward_ends()
        if OPTIMIZER_STEPS in self._collector.due_key:
            self._loop.norms.backward_ends()
        if not gradients.arrived:
            return
        if self._has_optimizer:  # the optimizer's step follows
            self._recorder.step_continues()
        self.events.emit(events.BackwardEnds())
        awaits_optimizer = self._has_optimizer or self._loop.steps.by_optimizer
        if gradients.all_announced and not awaits_optimizer:
            self._recorder.step_is_captured()

    # Optimizer steps -----------------------------------------------------------------------------

    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        # Without calls, because this runs in every step: a guard would be one.
        loop = self._loop
        try:
            has_first: bool = optimizer.param_groups[0]["params"][0].grad is not None
        except Exception:  # noqa: BLE001 - found again below, where it is logged
            has_first = False
        loop.counts.had_gradient = has_first
        known, is_due = self._is_ours.get(id(optimizer)), bool(self._collector.due)
        is_usual = has_first and self._has_begun and not loop.steps.was_in_evaluation
        if known is None or known[0]() is not optimizer or is_due or not is_usual:
            self._begin_optimizer_step(optimizer, has_closure)
        elif known[1]:
            self._has_optimizer, self._stepping = True, known[0]
            self._recorder.is_captured &= has_closure

    @guarded("steps")
    def _begin_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        counts = self._loop.counts
        counts.had_gradient = counts.had_gradient or has_gradient(optimizer)
        known = self._remember(optimizer)
        if not known[1]:
            return
        self._has_optimizer = True
        self._stepping = known[0]
        steps = self._loop.steps
        if steps.was_in_evaluation:
            steps.optimizer_steps(optimizer)
        if not self._has_begun:
            self._warn_if_unseen(optimizer)
        if not has_closure:
            self._recorder.is_captured = False  # even if other optimizers have stepped
        if self._collector.due:
            if OPTIMIZER_STEPS in self._collector.due_key:
                self._loop.norms.step_begins(optimizer, self._loop.counts.scale_of(optimizer))
            self.events.emit(events.OptimizerBegins(optimizer, has_closure))

    @guarded("steps")
    def _on_optimizer_step_ended(self, optimizer: Optimizer, _: bool) -> None:
        known = self._is_ours.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            known = self._remember(optimizer)
        loop, is_ours, recorder = self._loop, known[1], self._recorder
        counts, steps, is_due = loop.counts, loop.steps, bool(self._collector.due)
        is_saved = is_due and recorder.record is not None
        counts.step_ended(optimizer, is_ours=is_ours, is_recorded=is_saved)
        steps.trains_without_gradient = counts.without_gradient >= MANY_WITHOUT_EFFECT
        num_idle = self._num_idle[id(optimizer)] = self._num_idle.get(id(optimizer), 0) + is_ours
        is_without_effect = MANY_WITHOUT_EFFECT in (num_idle, counts.without_gradient)
        if is_without_effect and self._has_begun:
            loop.observer.on_steps_without_effect()
        if is_ours and self._clock.mode in WITHOUT_TRAINING and not counts.without_gradient:
            loop.observer.on_training_in_evaluation()
        if not is_ours or is_due:
            self._end_optimizer_step(optimizer, is_ours=is_ours)
            return
        self._stepping = None  # as there, but without the call
        is_complete = steps.optimizer_stepped(optimizer)
        if is_complete and (recorder.record is not None or recorder.is_skipped):
            recorder.step_is_captured()

    @guarded("steps")
    def _on_scaler_step(self, args: tuple[Any, ...], _: Any) -> None:
        # This also runs if the scaler skipped the optimizer's step.
        for optimizer in args:
            if isinstance(optimizer, Optimizer):
                is_ours = self._remember(optimizer)[1]
                self._loop.counts.scaler_stepped(args[0], optimizer, is_ours=is_ours)
                self._end_optimizer_step(optimizer, is_ours=is_ours)

    def _end_optimizer_step(self, optimizer: Optimizer, *, is_ours: bool) -> None:
        self._stepping = None
        steps, recorder = self._loop.steps, self._recorder
        if is_ours and len(self._registered.models) > 1 and self._collector.due:
            self._loop.gradients.have_been_used(parameters_of(optimizer))
        if not is_ours and not steps.knows_optimizers:
            steps.others_stepped()
            self._others_stepped(optimizer)
            return
        is_complete = steps.optimizer_stepped(optimizer)
        if is_complete and (recorder.record is not None or recorder.is_skipped):
            recorder.step_is_captured()

    def _others_stepped(self, optimizer: Optimizer) -> None:
        """Note a step of an optimizer that trains no parameters of this hook's models."""
        owner, recorder = self._loop.ownership, self._recorder
        owner.num_others += 1
        is_complete = recorder.is_captured or self._clock.is_evaluating
        if owner.num_others == MANY_OTHERS and is_complete and not recorder.saw_late_tensors:
            recorder.end_step()
            self._collector.clear()
            self._release_models()
        if owner.num_others == IDLE_STEPS:
            self._loop.observer.on_others_train(optimizer)

    @guarded("steps")
    def note_optimizer(self, optimizer: Optimizer) -> bool:
        """Handle a new optimizer, and return whether another training begins with it.

        It does if this hook's models have trained before, and the optimizer trains none of their
        parameters. Then tensors are not captured until a model of this hook is called again.
        """
        # Its parameters are not cached, because more may be added.
        has_begun = self._clock.num_steps > 0
        if not self.is_active or not has_begun or self._has_parameters_of(optimizer):
            return False
        self._loop.ownership.others_begin()
        is_of_modules = any(isinstance(p, nn.Parameter) for p in parameters_of(optimizer))
        return self._has_optimizer and is_of_modules

    def _remember(self, optimizer: Optimizer) -> tuple[ReferenceType[Optimizer], bool]:
        """Return a reference to an optimizer, and whether it trains parameters of the models."""
        known = self._is_ours.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            # Keyed by id, because optimizers of scripts may not be hashable.
            known = ref(optimizer), self._has_parameters_of(optimizer)
            self._is_ours[id(optimizer)] = known
            if not known[1]:
                self._loop.observer.on_other_optimizer(optimizer)
        return known

    def _has_parameters_of(self, optimizer: Optimizer) -> bool:
        ours = {id(p) for _, p in self._registered.all_named_parameters()}
        return any(id(p) in ours for p in parameters_of(optimizer))

    def _warn_if_unseen(self, optimizer: Optimizer) -> None:
        """Log once that a model trains without forward passes that the hook sees."""
        if has_gradient(optimizer):
            self.failures.warn_once(
                "the registered model trains, but the hook sees no forward pass and saves "
                "nothing. If it was compiled and called before registration, call "
                "torch.compiler.reset() once."
            )


_loops: Final[WeakSet[TorchEvents]] = WeakSet()


def _watch_alone(loop: TorchEvents, module: nn.Module) -> None:
    """Make older hooks release a model or loss that this one is about to watch.

    For example, a notebook cell that creates a hook may run again on the same model.
    """
    for older in list(_loops):
        if older is not loop and older.is_active:
            older.release(module)
    _loops.add(loop)
    # Also remove calls of deleted hooks, so that garbage collection cannot change a running pass.
    drop_calls(module, None)
    STEP_BEGINS.forget_deleted()
    STEP_ENDED.forget_deleted()
    ProcessEnd.finish_left()
