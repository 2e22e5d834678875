"""Finds the model and the losses of a PyTorch script that has no hook.

The model is the outermost module with trainable parameters whose forward pass is the first to run
with gradients; the page `docs/architecture.md` lists the exceptions.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary, ref

import torch
from torch import nn
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.data import get_worker_info

from hook_layer.autopatch.hook_of_script import HookOfScript
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import TrainingStoppedError
from hook_layer.pytorch import Hook, modes, own_hooks
from hook_layer.pytorch.calls import ModuleCall, OptimizerCall, prepare_scripting
from hook_layer.pytorch.loop_counts import MANY_WITHOUT_EFFECT, has_gradient
from hook_layer.pytorch.meshes import is_inferring_shapes
from hook_layer.pytorch.modules import is_a_key
from hook_layer.pytorch.patched_calls import call_after, call_before_compiled
from hook_layer.pytorch.training_loop import LoopObserver
from hook_layer.pytorch.transforms import is_transformed
from hook_layer.pytorch.unseen_training import UnseenTraining, UnwatchedModels
from hook_layer.pytorch.watched_functions import BACKWARD
from hook_layer.pytorch.whole_models import (
    MadeOptimizers,
    has_compiled_parts,
    is_around,
    is_being_made,
    is_called_as_part,
    is_called_within,
    is_trained,
    own_losses,
    whole_of,
    without_wrapper,
)

__all__ = ["Trainings", "attach_to_first_model", "leave_to_script", "watch_unchanged"]

logger = logging.getLogger("stepwatch")

_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing  # type: ignore[attr-defined]
_of_scripts: Final[list[Trainings]] = []
"""Those of hooks that scripts make, once for all of them: they patch functions of torch."""
_MAX_PASSES: Final = 2
"""Forward passes of the model in training during which losses are looked for."""
_MAX_CALLS: Final = 50
"""Forward passes with gradients in any mode: some models are trained in that of evaluation."""


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for each training of this process."""
    Trainings(source).begin()


def attach_to_first_model(hook: Hook) -> None:
    """Look for the model of a hook that a script made, which is known weakly."""
    source = HookOfScript(hook=ref(hook))
    if _of_scripts:
        _of_scripts[0].look_for(source)
        return
    _of_scripts.append(Trainings(source))
    _of_scripts[0].begin()


def leave_to_script(hook: Hook) -> bool:
    """Look for no model of a hook any more; return whether one was found."""
    return _of_scripts[0].leave(hook)


class Trainings:
    """The trainings of this process, each with a search for its model.

    Another one begins where an optimizer is made that trains no parameter of the models so far,
    after those were trained: the next model of a search, the next fold. The hook before continues
    as long as its model does.
    """

    def __init__(self, source: HookSource) -> None:
        self._source = source
        # By number: what other threads add meanwhile must not disturb who goes through them.
        self._losses: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
        self._searches = [self._search()]

    def _search(self, earlier: Sequence[Hook] = ()) -> _Search:
        return _Search(self._source, self._losses, self._on_optimizer_made, earlier)

    def begin(self) -> None:
        """Watch every module that is called, and the sources of losses and modes."""
        # torch's warning that it is called for the wrapper, too, which is looked through.
        warnings.filterwarnings("ignore", message=r".*torch\.compile.* when there are global hooks")
        prepare_scripting()  # scripts may import the function by its name
        call_after(_Loss, "__init__", self._on_loss_made)
        call_after(Optimizer, "__init__", self._on_optimizer_made)
        call_after(nn.Module, "train", self._on_mode)
        # A module that is compiled in place is called past the hooks of all modules.
        call_after(nn.Module, "compile", self._on_compiled)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_in_child)
        self._newest.begin()

    def look_for(self, source: HookSource) -> None:
        """Look for the next training, with another source of hooks."""
        self._source = source
        self._begin_next()

    def leave(self, hook: Hook) -> bool:
        """Look for no model of a hook any more; say whether it had one."""
        had_model = any(search.hook is hook for search in self._searches)
        for search in self._searches:
            if search.hook is hook or search.source.offers(hook):
                search.leave()
        return had_model

    @property
    def _newest(self) -> _Search:
        return self._searches[-1]

    def _on_loss_made(self, loss: nn.Module) -> None:
        _try(self._losses.__setitem__, id(loss), loss)
        _try(self._newest.note_loss, loss)

    def _on_mode(self, module: nn.Module) -> None:
        for search in self._searches:
            _try(search.note_mode, module)

    def _on_compiled(self, module: nn.Module) -> None:
        _try(self._newest.on_compiled, module)

    def _on_optimizer_made(self, optimizer: Optimizer) -> None:
        _try(self._note_optimizer, optimizer)

    def _note_optimizer(self, optimizer: Optimizer) -> None:
        are_others = [search.note_optimizer(optimizer) for search in self._searches]
        if all(are_others):
            hooks = [search.hook for search in self._searches if search.is_watching]
            self._begin_next([hook for hook in hooks if hook is not None])
            self._newest.note_optimizer(optimizer)

    def _begin_next(self, earlier: Sequence[Hook] = ()) -> None:
        self._newest.end()
        watching = [search for search in self._searches if search.is_watching]
        self._searches = [*watching, self._search(earlier)]
        self._newest.begin()

    def _begin_in_child(self) -> None:
        """Look for a training of this process, which is a fork: hooks do not work in it."""
        if any(search.hook is not None for search in self._searches):
            for search in self._searches:
                search.end()
            self._searches = [self._search()]
            self._newest.begin()


class _Search(LoopObserver):
    """Looks for the model of one training and for its losses.

    Attributes:
        hook: The hook of the training; None before the model was found.

    Args:
        source: Where the hook comes from.
        losses: The losses that were made in this process.
        on_others_train: Is called with an optimizer of another model that trains meanwhile.
        earlier: The hooks of trainings before this one that may continue.
    """

    def __init__(
        self,
        source: HookSource,
        losses: WeakValueDictionary[int, nn.Module],
        on_others_train: Callable[[Optimizer], None],
        earlier: Sequence[Hook],
    ) -> None:
        self.source = source
        self._losses = losses
        self._on_others_train = on_others_train
        self._earlier = earlier
        self._parts: WeakSet[nn.Module] = WeakSet()
        self.hook: Hook | None = None
        self._spare: Hook | None = None  # of a model that turned out to be none
        self._tried: Any = None  # listens as long as the model may turn out to be none
        self._model: Callable[[], nn.Module | None] = lambda: None
        self._entrance: Callable[[], nn.Module | None] = self._model
        """The model, or the part of it that stands for it."""
        self._kind: type[nn.Module] = nn.Module
        self._num_passes = self._num_calls = 0
        self._unwatched = UnwatchedModels()
        self._optimizers = MadeOptimizers()
        self._handle: Any = None
        self._step_handle: Any = None  # as long as no model is found
        self._num_without_effect = 0  # steps of optimizers in a row, without a gradient
        self._is_idle = False  # whether optimizers may step while the model is not called
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Look at every module that is called."""
        self._listen()
        self._step_handle = own_hooks.register(
            register_optimizer_step_pre_hook, OptimizerCall(self._on_optimizer_step)
        )
        if not self._earlier:
            UnseenTraining(self._is_unseen, self._optimizers, self._unwatched).begin()

    @property
    def is_watching(self) -> bool:
        """Whether the model was found and its training continues."""
        return self.hook is not None and self.hook.is_active

    @property
    def _is_looking(self) -> bool:
        """Whether the model is still looked for, or only tried out."""
        return (self.hook is None or self._tried is not None) and self._handle is not None

    def _listen(self) -> None:
        self._handle = own_hooks.register(register_module_forward_pre_hook, self._on_forward)

    def end(self) -> None:
        """Look at no further module."""
        self._is_idle = False
        for handle in (self._handle, self._step_handle):
            if handle is not None:
                handle.remove()
        self._handle = self._step_handle = None

    def leave(self) -> None:
        """Look at no further module, and leave the hook alone."""
        self._settle()
        self.end()
        hook, self.hook = self.hook, None
        self._model = self._entrance = lambda: None
        if hook is not None:
            hook.loop.observer = LoopObserver()

    # What happens in the script ------------------------------------------------------------------

    def _on_forward(self, module: nn.Module, inputs: Any) -> None:
        if not torch.compiler.is_compiling():  # this function is then a part of the graph
            self._try(self._look_at, module, inputs)

    def on_compiled(self, module: nn.Module) -> None:
        """Look at the calls of a module that is compiled in place."""
        if self._is_looking:
            call_before_compiled(module, self._on_compiled_call)

    def _on_compiled_call(self, module: nn.Module) -> bool:
        if self._is_looking:
            self._try(self._look_at_compiled, module)
        return self._is_looking

    def note_loss(self, loss: nn.Module) -> None:
        """Watch a loss that is made while the training continues."""
        if self.hook is not None and self.hook.is_active and self._handle is not None:
            self.hook.register_loss(loss)

    def note_mode(self, module: nn.Module) -> None:
        """Follow the mode of the model."""
        if self.hook is not None and module is self._model():
            self._set_mode(module)

    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        is_without_effect = not has_closure and not has_gradient(optimizer)
        self._num_without_effect = self._num_without_effect + 1 if is_without_effect else 0

    def leaves_out(self, models: Iterable[nn.Module]) -> bool:
        """Return whether no optimizer of the script holds parameters of any of these models."""
        return all(map(self._optimizers.leave_out, list(models)))

    def on_others_train(self, optimizer: Optimizer) -> None:
        """Note that an optimizer of another model steps while this one is not called."""
        self._on_others_train(optimizer)

    def on_steps_without_effect(self) -> None:
        """Look for another model: the optimizers train nothing of this one."""
        model = self._model()
        if model is None or not has_compiled_parts(model):
            self._is_idle = True
            if self._handle is None:
                self._num_passes = self._num_calls = 0
                self._listen()

    # What is made of it --------------------------------------------------------------------------

    def _look_at(self, module: nn.Module, inputs: Any) -> None:
        if _is_tracing() or getattr(module, "_is_replica", False) or not is_a_key(module):
            return
        if self._is_idle and self._takes_over(module):
            self._change_to(module, inputs)
            return
        has_gradients = torch.is_grad_enabled() or self._is_trained_without_effect(module)
        may_be_model = self._is_open_to(module) and has_gradients
        if may_be_model and not self._passes_by(module) and self._is_found_in(module):
            hook, model = self.hook, self._model()
            if hook is not None and model is not None and module is self._entrance():
                # torch listed the hooks of this call before this one was among them.
                hook.forward_pre_hook(model, inputs)
        if module is self._entrance():
            self._is_idle = False
            self._num_passes += module.training
            self._num_calls += torch.is_grad_enabled()
            if self._num_passes > _MAX_PASSES or self._num_calls > _MAX_CALLS:
                self.end()
        elif module in self._parts:
            return
        elif self.hook is not None and type(module).__name__.endswith("Loss"):
            self.hook.register_loss(module)
        elif self._is_another(module):
            self._unwatched.report_other_model(module, self._model())

    def _is_open_to(self, module: nn.Module) -> bool:
        """Return whether a module may be the model: there is none, or a part is tried out."""
        is_whole = self._tried is not None and is_around(module, self._model())
        return self.hook is None or is_whole

    def _look_at_compiled(self, module: nn.Module) -> None:
        if _is_tracing() or not is_a_key(module) or self._passes_by(module):
            return
        # Without gradients it may be a part of what will be called with some.
        may_be_model = torch.is_grad_enabled() or not is_called_as_part(module)
        if may_be_model and self._is_open_to(module):
            self._is_found_in(module)

    def _passes_by(self, module: nn.Module) -> bool:
        is_scripted = isinstance(module, torch.jit.ScriptModule)  # which is reported
        is_beside = not is_scripted and self._optimizers.pass_by(module)
        is_beside &= self._num_without_effect < MANY_WITHOUT_EFFECT
        return is_beside or is_transformed(module) or is_being_made() or is_inferring_shapes()

    def _is_trained_without_effect(self, module: nn.Module) -> bool:
        """Return whether optimizers train a module whose gradients are switched off."""
        is_without_effect = self._num_without_effect >= MANY_WITHOUT_EFFECT and self.hook is None
        return is_without_effect and module.training and not self._optimizers.leave_out(module)

    def _takes_over(self, module: nn.Module) -> bool:
        """Return whether a module was made anew, and optimizers still train the one before."""
        if without_wrapper(module) is self._model() or not torch.is_grad_enabled():
            return False
        is_same_kind = type(without_wrapper(module)) is self._kind
        return is_same_kind and is_trained(module) and self._optimizers.leave_out(module)

    def _change_to(self, module: nn.Module, inputs: Any) -> None:
        """Watch another model with the hook, for the one before is not called any more."""
        self._is_idle = False
        if self.hook is not None:
            self.hook.loop.release_models()
            self._parts.clear()
            self._watch(self.hook, without_wrapper(module))
            self.hook.forward_pre_hook(without_wrapper(module), inputs)

    def _is_found_in(self, module: nn.Module) -> bool:
        """Look whether a module is the model, and say whether it is now, or a part of it."""
        if not self._lock.acquire(blocking=False):
            return False  # while another thread looks: there are further calls of this one
        try:
            if not (self._is_open_to(module) and self._has_none()):
                return False
            self._look_for_model(module)
            return self.hook is not None
        finally:
            self._lock.release()

    def _look_for_model(self, module: nn.Module) -> None:
        spare = self._spare
        may_begin = spare is not None or self.source.is_needed(self._earlier)
        if get_worker_info() is not None or not may_begin:
            self.end()
        elif isinstance(module, torch.jit.ScriptModule):
            self._unwatched.report_scripted(module)
        elif is_trained(module):
            hook = spare or self.source.make(Hook, self._earlier)
            if hook is None:
                self.end()
            else:
                self._watch(hook, without_wrapper(module))

    def _watch(self, hook: Hook, entrance: nn.Module) -> None:
        model = whole_of(entrance, self._optimizers)
        self.hook, self._model, self._entrance = hook, ref(model), ref(entrance)
        self._kind = type(model)
        hook.loop.observer = self
        if self._step_handle is not None:
            self._step_handle.remove()
            self._step_handle = None
        self._parts.update(part for part in model.modules() if is_a_key(part))
        hook.watch_model(model)
        if model is not entrance:
            call = ModuleCall(entrance, self._on_entrance)
            own_hooks.register(
                entrance.register_forward_pre_hook, call, prepend=True, with_kwargs=True
            )
        has_optimizer = bool(self._optimizers) and not self._optimizers.leave_out(model)
        if has_optimizer and self.source.decides_steps:
            hook.follow_optimizers()
        self._set_mode(model)
        is_compiled = has_compiled_parts(model)
        made = (known() for known in self._losses.valuerefs())
        for loss in (*made, *(own_losses() if is_compiled else ())):
            if loss is not None and is_a_key(loss) and loss not in self._parts:
                hook.register_loss(loss)
        if is_compiled:
            self.end()  # the graphs shall not have us in them
        elif not self._optimizers:
            self._tried = BACKWARD.listen(self._settle, is_before_call=True)

    def note_optimizer(self, optimizer: Optimizer) -> bool:
        """Note that an optimizer was made; say whether another training begins with it."""
        self._optimizers.add(optimizer)
        hook, model = self.hook, self._model()
        if self._tried is not None and model is not None and self._optimizers.train_beyond(model):
            self._has_none()
            return False
        # A hook that is closed has ended its training.
        return hook is not None and (
            not hook.is_active or bool(hook.loop.note_optimizer(optimizer))
        )

    def _settle(self, *_: object) -> None:
        """Note that the model is the one to watch, whatever comes."""
        if self._tried is not None:
            self._tried.remove()
            self._tried = None

    def _has_none(self) -> bool:
        """Return whether there is no model, after forgetting the one that was only tried out."""
        self._settle()
        if self.hook is not None and self._handle is not None and self.hook.loop.start_over():
            self._spare, self.hook = self.hook, None
            self._model = self._entrance = lambda: None
            self._parts.clear()
            self._num_passes = self._num_calls = 0
        return self.hook is None

    def _on_entrance(self, _: nn.Module, inputs: Any, __: Any) -> None:
        hook, model = self.hook, self._model()
        if hook is not None and model is not None and not is_called_within(model):
            hook.forward_pre_hook(model, inputs)

    def _is_another(self, module: nn.Module) -> bool:
        """Return whether another model is trained, for the first time that one is seen."""
        is_settled = self.hook is not None and self._tried is None
        should_report = is_settled and not self._unwatched.has_other_model
        if not should_report or isinstance(module, torch.jit.ScriptModule):
            return False
        if without_wrapper(module) is self._model() or not torch.is_grad_enabled():
            return False
        return is_trained(module) and not self._optimizers.leave_out(module)

    def _is_unseen(self) -> bool:
        """Return whether no model was found so far, nor any other hook is made."""
        is_needed = self.hook is None and self._is_looking
        return is_needed and self.source.is_needed(self._earlier)

    def _set_mode(self, model: nn.Module) -> None:
        mode = modes.TRAIN if model.training else modes.EVAL
        if not self.source.decides_steps:
            return
        if self.hook is not None and self.hook.mode is not mode:
            self.hook.set_mode(mode)

    def _try(self, function: Callable[..., object], *arguments: object) -> None:
        if not _try(function, *arguments):
            self.end()


def _try(function: Callable[..., object], *arguments: object) -> bool:
    """Call a function whose errors must not reach the script; say whether it had none."""
    try:
        function(*arguments)
    except TrainingStoppedError:
        raise
    except Exception:
        logger.exception("finding the model failed; the script runs without a hook")
        return False
    return True
