"""Finds the model and the losses of a PyTorch script that has no hook.

The model is the outermost module with trainable parameters whose forward pass is the first with
gradients. The page `docs/architecture.md` lists the exceptions.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary, ref

import torch
from torch import nn
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer
from torch.utils.data import get_worker_info

from hook_layer.autopatch.hook_of_script import HookOfScript
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import TrainingStoppedError
from hook_layer.pytorch import Hook, modes
from hook_layer.pytorch.calls import (
    STEP_BEGINS,
    STEP_ENDED,
    ModuleCall,
    prepare_scripting,
    register_hook,
)
from hook_layer.pytorch.creation_lines import CREATED
from hook_layer.pytorch.loop_counts import MANY_WITHOUT_EFFECT, has_gradient
from hook_layer.pytorch.loop_state import LoopObserver
from hook_layer.pytorch.model_search import (
    MadeOptimizers,
    UnwatchedModels,
    call_when_it_returns,
    has_compiled_parts,
    is_around,
    is_being_made,
    is_called_as_part,
    is_called_within,
    is_trained,
    module_trained_by,
    own_losses,
    whole_of,
    without_wrapper,
)
from hook_layer.pytorch.ranks import is_inferring_shapes
from hook_layer.pytorch.steps import is_transformed
from hook_layer.pytorch.watched_functions import BACKWARD, call_after, call_before_compiled
from hook_layer.pytorch.wrappers import is_a_key

__all__ = ["Trainings", "attach_to_first_model", "leave_to_script", "watch_unchanged"]

logger = logging.getLogger("stepwatch")

_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing
_script_trainings: Final[list[Trainings]] = []
"""Trainings of hooks that scripts create; a single one, because it patches functions of torch."""
_MAX_PASSES: Final = 2
"""Number of the model's training passes during which losses are searched for."""
_STEPS_WITHOUT_CALL: Final = 3
"""Optimizer steps without any call of a module with gradients after which its calls are unseen."""
_MAX_CALLS: Final = 50
"""Number of passes with gradients in any mode: some models train in evaluation mode."""


def watch_unchanged(source: HookSource) -> None:
    """Create a hook for each training of this process."""
    Trainings(source).begin()


def attach_to_first_model(hook: Hook) -> None:
    """Search for the model of a hook that a script created; the hook is referenced weakly."""
    source = HookOfScript(hook=ref(hook))
    if _script_trainings:
        _script_trainings[0].begin_next(source)
    else:
        _script_trainings.append(Trainings(source))
        _script_trainings[0].begin()


def leave_to_script(hook: Hook) -> bool:
    """Stop searching for the model of a hook; return whether one was found."""
    return _script_trainings[0].leave(hook)


class Trainings:
    """The trainings of this process, each with a search for its model.

    Another training begins when a new optimizer trains no parameter of the earlier models, and
    those have trained: the next model of a search, or the next fold. The previous hook continues as
    long as its model does.
    """

    def __init__(self, source: HookSource) -> None:
        self._source = source
        # Keyed by id, so that other threads can add losses during iteration.
        self._losses: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
        self._searches = [self._search()]

    def _search(self, earlier: Sequence[Hook] = ()) -> _Search:
        return _Search(self._source, self._losses, partial(_try, self._on_optimizer_made), earlier)

    def begin(self) -> None:
        """Watch all module calls, and changes of losses and modes."""
        # Hide torch's warning about global hooks on the compiled wrapper, which Stepwatch handles.
        warnings.filterwarnings("ignore", message=r".*torch\.compile.* when there are global hooks")
        prepare_scripting()  # scripts may import the function by name
        call_after(_Loss, "__init__", self._on_loss_made)
        call_after(Optimizer, "__init__", self._on_optimizer_made)
        call_after(nn.Module, "train", self._on_mode_set)
        # A module compiled in place bypasses global module hooks.
        call_after(nn.Module, "compile", self._on_compiled)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_in_child)
        self._newest.begin()

    def begin_next(self, source: HookSource, earlier: Sequence[Hook] = ()) -> None:
        """Search for the model of a training that is known to follow those of `earlier` hooks."""
        self._source = source
        self._newest.end()
        self._newest.is_newest = False
        watching = [search for search in self._searches if search.is_watching]
        self._searches = [*watching, self._search(earlier)]
        self._newest.begin()

    def leave(self, hook: Hook) -> bool:
        """Stop searching for the model of a hook; return whether it had one."""
        had_model = any(search.hook is hook for search in self._searches)
        for search in self._searches:
            if search.hook is hook or search.source.offers(hook):
                search.leave()
        return had_model

    @property
    def _newest(self) -> _Search:
        return self._searches[-1]

    def _on_loss_made(self, loss: nn.Module) -> None:
        self._losses[id(loss)] = loss
        self._newest.on_loss_made(loss)

    def _on_compiled(self, module: nn.Module) -> None:
        self._newest.on_compiled(module)

    def _on_mode_set(self, module: nn.Module) -> None:
        for search in self._searches:
            search.on_mode_set(module)

    def _on_optimizer_made(self, optimizer: Optimizer) -> None:
        CREATED.remember(optimizer)
        are_others = [search.begins_another_training(optimizer) for search in self._searches]
        if all(are_others):
            hooks = [search.hook for search in self._searches if search.is_watching]
            self.begin_next(self._source, [hook for hook in hooks if hook is not None])
            self._newest.begins_another_training(optimizer)

    def _begin_in_child(self) -> None:
        """Start a new search in a forked process, because its inherited hooks do not work."""
        if any(search.hook is not None for search in self._searches):
            for search in self._searches:
                search.end()
            self._searches = [self._search()]
            self._newest.begin()


class _Search(LoopObserver):
    """Searches for the model of one training, and for its losses.

    Attributes:
        hook: The hook of the training; None before the model was found.
        is_newest: Whether no other training has begun since.
    """

    def __init__(
        self,
        source: HookSource,
        losses: WeakValueDictionary[int, nn.Module],
        on_others_train: Callable[[Optimizer], object],
        earlier: Sequence[Hook],
    ) -> None:
        self.source = source
        self._losses = losses
        self._on_others_train = on_others_train
        self._earlier = earlier
        self._parts: WeakSet[nn.Module] = WeakSet()
        self._others: WeakSet[nn.Module] = WeakSet()  # of further models
        self.is_newest = True
        self.hook: Hook | None = None
        self._spare: Hook | None = None  # hook of a rejected model
        self._tried: Any = None  # a listener, while the model may still be rejected
        self._model: Callable[[], nn.Module | None] = _no_model
        self._entrance: Callable[[], nn.Module | None] = _no_model
        """The model, or the part of it whose calls stand for it."""
        self._kind: type[nn.Module] = nn.Module
        self._num_passes = self._num_calls = 0
        self._optimizers = MadeOptimizers()
        self._unwatched = UnwatchedModels(self._optimizers)
        self._handle: Any = None
        self._step_handle: Any = None  # while no model is found
        self._step_end_handle: Any = None  # while calls of the model are not seen
        self._num_without_call = 0  # optimizer steps
        self._num_without_effect = 0  # consecutive optimizer steps without a gradient
        self._is_idle = False  # whether optimizers step while the model is not called
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Watch all module calls."""
        self._listen()
        self._step_handle = STEP_BEGINS.listen(self._on_optimizer_step)
        if not self._earlier:
            self._unwatched.report_missing(self._is_missing)

    @property
    def is_watching(self) -> bool:
        """Whether the model is found and still trains."""
        return self.hook is not None and self.hook.is_active

    @property
    def _is_searching(self) -> bool:
        """Whether no model is found, or the model may still be rejected."""
        return (self.hook is None or self._tried is not None) and self._handle is not None

    def _listen(self) -> None:
        self._num_passes = self._num_calls = 0
        self._handle = register_hook(register_module_forward_pre_hook, self._on_forward)

    def end(self) -> None:
        """Stop watching module calls."""
        self._is_idle = False
        for handle in (self._handle, self._step_handle, self._step_end_handle):
            if handle is not None:
                handle.remove()
        self._handle = self._step_handle = self._step_end_handle = None

    def leave(self) -> None:
        """Stop watching module calls, and release the hook."""
        self._settle()
        self.end()
        hook, self.hook = self.hook, None
        self._model = self._entrance = _no_model
        if hook is not None:
            hook.loop_state.observer = LoopObserver()

    # Events of the script ------------------------------------------------------------------------

    def _on_forward(self, module: nn.Module, inputs: Any) -> None:
        if not torch.compiler.is_compiling():  # otherwise this function is a part of the graph
            self._try(self._check_call, module, inputs)

    def on_compiled(self, module: nn.Module) -> None:
        """Watch the calls of a module that is compiled in place."""
        if self._is_searching:
            call_before_compiled(module, self._on_compiled_call)

    def _on_compiled_call(self, module: nn.Module) -> bool:
        if self._is_searching:
            self._try(self._check_compiled_call, module)
        return self._is_searching

    def on_loss_made(self, loss: nn.Module) -> None:
        """Watch a new loss module during the training."""
        if self.hook is not None and self.hook.is_active and self._handle is not None:
            self.hook.register_loss(loss)

    def on_mode_set(self, module: nn.Module) -> None:
        """Follow the mode of the model."""
        if self.hook is not None and module is self._model():
            self._set_mode(module)

    def _on_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        is_without_effect = not has_closure and not has_gradient(optimizer)
        self._num_without_effect = self._num_without_effect + 1 if is_without_effect else 0
        self._num_without_call += 1
        is_trained_unseen = self._unwatched.num_backward > 0 and not is_without_effect
        if self._num_without_call == _STEPS_WITHOUT_CALL and is_trained_unseen:
            self._try(self._watch_without_calls, optimizer)

    def _watch_without_calls(self, optimizer: Optimizer) -> None:
        """Watch a model whose calls are not seen, such as `model.forward(inputs)`.

        Each of its steps begins when the optimizer has ended the one before.
        """
        model = module_trained_by(optimizer)
        if model is None or not self._is_found_in(model):
            return
        self._step_end_handle = STEP_ENDED.listen(self._on_step_without_call)
        logger.warning(
            "no call of a %s is seen: it is called as model.forward(...), or in compiled code. Its "
            "weights, gradients and losses are saved; inputs and outputs of its layers are not",
            type(model).__name__,
        )

    def _on_step_without_call(self, _: Optimizer, __: bool) -> None:
        self._try(self._begin_pass)

    def _begin_pass(self, inputs: Any = ()) -> None:
        """Begin a pass of the model whose call torch does not report to the hook."""
        hook, model = self.hook, self._model()
        if hook is not None and model is not None:
            hook.forward_pre_hook(model, inputs)

    def leaves_out(self, models: Iterable[nn.Module]) -> bool:
        """Return whether the script's optimizers hold no parameters of any of these models."""
        return all(map(self._optimizers.leave_out, list(models)))

    def on_other_optimizer(self, optimizer: Optimizer) -> None:
        """Search for the model of an optimizer that trains none of the watched ones."""
        is_made = any(optimizer is made for made in self._optimizers.all_made())
        if is_made and self.is_newest and self.is_watching and self._handle is None:
            self._listen()

    def on_others_train(self, optimizer: Optimizer) -> None:
        """Handle an optimizer of another model that steps while this model is not called."""
        self._on_others_train(optimizer)

    def on_training_in_evaluation(self) -> None:
        """Count the following steps as training: scripts forget model.train() after validation."""
        if self.hook is None or not self.source.decides_steps:
            return
        self.hook.set_mode(modes.TRAIN)
        self.hook.state.warn_once(
            "the model trains in evaluation mode (model.eval()), without dropout; call "
            "model.train() after validation, unless this is on purpose"
        )

    def on_steps_without_effect(self) -> None:
        """Search for another model, because the optimizers do not train this one."""
        model = self._model()
        if model is None or not has_compiled_parts(model):
            self._is_idle = True
            if self._handle is None:
                self._listen()

    # Decisions -----------------------------------------------------------------------------------

    def _check_call(self, module: nn.Module, inputs: Any) -> None:
        if _is_tracing() or getattr(module, "_is_replica", False) or not is_a_key(module):
            return
        if self._is_idle and self._takes_over(module):
            self._change_to(module, inputs)
            return
        has_gradients = torch.is_grad_enabled() or self._is_trained_without_effect(module)
        may_be_model = self._is_open_to(module) and has_gradients
        is_found = may_be_model and not self._is_excluded(module) and self._is_found_in(module)
        if module is self._entrance():
            if is_found:  # the new hook misses this call, because torch has listed its hooks
                self._begin_pass(inputs)
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
            self._others.update(part for part in module.modules() if is_a_key(part))
            call_when_it_returns(module, partial(_try, self._watch_other))

    def _is_open_to(self, module: nn.Module) -> bool:
        """Return whether a module may be the model: none is found, or a part may be rejected."""
        is_whole = self._tried is not None and is_around(module, self._model())
        return self.hook is None or is_whole

    def _check_compiled_call(self, module: nn.Module) -> None:
        if _is_tracing() or not is_a_key(module) or self._is_excluded(module):
            return
        # Without gradients, it may be a part of a module that is later called with gradients.
        may_be_model = torch.is_grad_enabled() or not is_called_as_part(module)
        if may_be_model and self._is_open_to(module):
            self._is_found_in(module)

    def _is_excluded(self, module: nn.Module) -> bool:
        is_scripted = isinstance(module, torch.jit.ScriptModule)  # is reported
        is_beside = not is_scripted and self._optimizers.exclude(module)
        is_beside &= self._num_without_effect < MANY_WITHOUT_EFFECT
        return is_beside or is_transformed(module) or is_being_made() or is_inferring_shapes()

    def _is_trained_without_effect(self, module: nn.Module) -> bool:
        """Return whether optimizers train a module whose gradients are disabled."""
        is_without_effect = self._num_without_effect >= MANY_WITHOUT_EFFECT and self.hook is None
        return is_without_effect and module.training and not self._optimizers.leave_out(module)

    def _takes_over(self, module: nn.Module) -> bool:
        """Return whether a module was recreated, and optimizers still train the previous one."""
        is_same_kind = type(without_wrapper(module)) is self._kind
        is_recreated = is_same_kind and self._is_other_model(module)
        return is_recreated and self._optimizers.leave_out(module)

    def _change_to(self, module: nn.Module, inputs: Any) -> None:
        """Watch another model with the same hook: the script no longer calls the previous."""
        self._is_idle = False
        if self.hook is not None:
            self.hook.loop.release_models()
            self._parts.clear()
            self._watch(self.hook, without_wrapper(module))
            self._begin_pass(inputs)

    def _is_found_in(self, module: nn.Module) -> bool:
        """Check whether a module is the model or a part; return whether a model was found."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread is checking, and this module will be called again
        try:
            if not (self._is_open_to(module) and self._has_none()):
                return False
            self._accept(module)
            return self.hook is not None
        finally:
            self._lock.release()

    def _accept(self, module: nn.Module) -> None:
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
        hook.loop_state.observer = self
        if self._step_handle is not None:
            self._step_handle.remove()
            self._step_handle = None
        self._watch_calls(hook, model)
        if model is not entrance:
            call = ModuleCall(entrance, self._on_entrance)
            register_hook(entrance.register_forward_pre_hook, call, prepend=True, with_kwargs=True)
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
            self.end()  # keep this hook out of the compiled graphs
        elif not self._optimizers:
            self._tried = BACKWARD.listen(self._settle, is_before_call=True)

    def _watch_calls(self, hook: Hook, model: nn.Module) -> None:
        self._parts.update(part for part in model.modules() if is_a_key(part))
        hook.watch_model(model)

    def _watch_other(self, module: nn.Module) -> None:
        """Watch a further model that the script's optimizers train."""
        hook, other = self.hook, without_wrapper(module)
        if hook is None or not hook.is_active or other in self._parts:
            return
        if any(map(hook.loop_state.registered.has_model, other.modules())):
            return  # it contains a watched model, whose calls would count twice
        self._watch_calls(hook, other)
        logger.info("a %s is watched, too", type(other).__name__)
        if hook.step <= 0 and self.source.decides_steps:
            hook.loop.expect(self._optimizers.all_made())

    def begins_another_training(self, optimizer: Optimizer) -> bool:
        """Add a new optimizer; return whether another training begins with it."""
        self._optimizers.add(optimizer)
        hook, model = self.hook, self._model()
        if self._tried is not None and model is not None and self._optimizers.train_beyond(model):
            self._has_none()
            return False
        if hook is None:
            return False
        # A closed hook has ended its training.
        return not hook.is_active or bool(hook.loop.note_optimizer(optimizer))

    def _settle(self, *_: object) -> None:
        """Accept the model as final."""
        if self._tried is not None:
            self._tried.remove()
            self._tried = None

    def _has_none(self) -> bool:
        """Return whether there is no model, after rejecting one that is not final."""
        self._settle()
        if self.hook is not None and self._handle is not None and self.hook.loop.start_over():
            self._spare, self.hook = self.hook, None
            self._model = self._entrance = _no_model
            self._parts.clear()
            self._num_passes = self._num_calls = 0
        return self.hook is None

    def _on_entrance(self, _: nn.Module, inputs: Any, __: Any) -> None:
        model = self._model()
        if model is not None and not is_called_within(model):
            self._begin_pass(inputs)

    def _is_another(self, module: nn.Module) -> bool:
        """Return whether another model is trained that is not known yet."""
        is_settled = self.hook is not None and self._tried is None
        if not is_settled or module in self._others or isinstance(module, torch.jit.ScriptModule):
            return False
        return self._is_other_model(module) and not self._optimizers.leave_out(module)

    def _is_other_model(self, module: nn.Module) -> bool:
        """Return whether a module is called with gradients and trainable, but not the model."""
        is_other = without_wrapper(module) is not self._model()
        return is_other and torch.is_grad_enabled() and is_trained(module)

    def _is_missing(self) -> bool:
        """Return whether no model is found, and no other hook exists."""
        is_needed = self.hook is None and self._is_searching
        return is_needed and self.source.is_needed(self._earlier)

    def _set_mode(self, model: nn.Module) -> None:
        mode = modes.TRAIN if model.training else modes.EVAL
        hook = self.hook
        if hook is not None and hook.mode is not mode and self.source.decides_steps:
            hook.set_mode(mode)

    def _try(self, function: Callable[..., object], *arguments: object) -> None:
        if not _try(function, *arguments):
            self.end()


def _try(function: Callable[..., object], *arguments: object) -> bool:
    """Call a function whose errors must not reach the script; return whether it succeeded."""
    try:
        function(*arguments)
    except TrainingStoppedError:
        raise
    except Exception:
        logger.exception("finding the model failed; the script runs without a hook")
        return False
    return True


def _no_model() -> None:
    """Stand for a reference to a model that was not found."""
