"""Finding the model and the losses of a PyTorch script that has no hook.

The model is the outermost module with parameters to train whose forward pass is the first to run
with gradients: a pass under `torch.no_grad()` may be that of a network that only makes features,
and one within the `__init__` of another module only tells it of a shape. Layers of Keras, which
are modules where it computes by torch, are left to Keras's adapter.
The hook is made, and registers it, right ahead of that pass. A module of `torch.jit` has no place
for a hook, and is passed over. The losses are the modules of
`torch.nn` that the script makes, any outside of the model whose class is called `...Loss`, and what
`Hook.look_for_losses` finds; one without a module is known from the backward pass, as always. A
step is one of the optimisers, if any was made ahead of that pass: so several passes of one step, as
of two inputs that are compared, or of accumulated gradients, are one. The mode is the model's own:
TRAIN after `model.train()`, EVAL after `model.eval()`. Once training goes on, nothing looks at
other modules any more.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, Final
from weakref import WeakSet, ref

import torch
from torch import nn
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import TrainingStoppedError
from hook_layer.pytorch import Hook, modes
from hook_layer.pytorch.calls import prepare_scripting
from hook_layer.pytorch.modules import is_a_key, is_wrapper

__all__ = ["watch_unchanged"]

logger = logging.getLogger("stepwatch")

_is_tracing: Final[Callable[[], bool]] = torch.jit.is_tracing  # type: ignore[attr-defined]
_MAX_PASSES: Final = 2
"""Forward passes of the model in training during which losses are looked for."""
_MAX_CALLS: Final = 50
"""Forward passes with gradients in any mode: some models are trained in that of evaluation."""


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for the first model that is trained in this process.

    Args:
        source: Where the hook comes from.
    """
    _Search(source).begin()


class _Search:
    """Looks for the model and for its losses.

    Args:
        source: Where the hook comes from.
    """

    def __init__(self, source: HookSource) -> None:
        self._source = source
        self._losses: WeakSet[nn.Module] = WeakSet()
        self._parts: WeakSet[nn.Module] = WeakSet()
        self._hook: Hook | None = None
        self._model: Callable[[], nn.Module | None] = lambda: None
        self._num_passes = self._num_calls = 0
        self._has_passed_over = self._has_met_another = self._has_optimizer = False
        self._handle: Any = None

    def begin(self) -> None:
        """Look at every module that is called, and at what tells of losses and modes."""
        self._handle = register_module_forward_pre_hook(self._on_forward)
        # torch's warning that it is called for the wrapper, too, which is looked through.
        warnings.filterwarnings("ignore", message=r".*torch\.compile.* when there are global hooks")
        prepare_scripting()  # scripts may import the function by its name
        _call_after(_Loss, "__init__", self._on_loss_made)
        _call_after(Optimizer, "__init__", self._on_optimizer_made)
        _call_after(nn.Module, "train", self._on_mode)
        # A module that is compiled in place is called past the hooks of all modules.
        _call_before(nn.Module, "compile", self._on_compile)

    def _end(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    # What happens in the script ------------------------------------------------------------------

    def _on_forward(self, module: nn.Module, inputs: Any) -> None:
        if not torch.compiler.is_compiling():  # this function is then a part of the graph
            self._try(self._look_at, module, inputs)

    def _on_compile(self, module: nn.Module) -> None:
        if self._hook is None and self._handle is not None:
            self._try(self._look_for_model, module)

    def _on_loss_made(self, loss: nn.Module) -> None:
        self._try(self._losses.add, loss)
        # One that is made once training goes on is another training's, as in the next fold.
        if self._hook is not None and self._hook.is_active and self._handle is not None:
            self._try(self._hook.register_loss, loss)

    def _on_optimizer_made(self, _: Optimizer) -> None:
        self._has_optimizer = True

    def _on_mode(self, module: nn.Module) -> None:
        if self._hook is not None and module is self._model():
            self._try(self._set_mode, module)

    # What is made of it --------------------------------------------------------------------------

    def _look_at(self, module: nn.Module, inputs: Any) -> None:
        if _is_tracing() or getattr(module, "_is_replica", False) or not is_a_key(module):
            return
        if self._hook is None and torch.is_grad_enabled() and not _is_being_made():
            self._look_for_model(module)
            hook: Hook | None = self._hook
            if hook is not None and module is self._model():
                # torch listed the hooks of this call before this one was among them.
                hook.forward_pre_hook(module, inputs)
        if module is self._model():
            self._num_passes += module.training
            self._num_calls += torch.is_grad_enabled()
            if self._num_passes > _MAX_PASSES or self._num_calls > _MAX_CALLS:
                self._end()
        elif self._is_in_model(module):
            return
        elif type(module).__name__.endswith("Loss"):
            self._register_loss(module)
        elif self._is_another(module):
            self._has_met_another = True
            logger.warning(
                "only the first model of a process is watched, a %s; this is another one, a %s",
                type(self._model()).__name__,
                type(module).__name__,
            )

    def _look_for_model(self, module: nn.Module) -> None:
        if not self._source.is_needed():
            self._end()
        elif isinstance(module, torch.jit.ScriptModule):
            self._pass_over(module)
        elif _is_trained(module):
            hook = self._source.make(Hook)
            if hook is None:
                self._end()
            else:
                self._watch(hook, _without_wrapper(module))

    def _pass_over(self, module: nn.Module) -> None:
        if not self._has_passed_over:
            self._has_passed_over = True
            logger.warning(
                "a %s of torch.jit has no place for a hook, and is not watched: train the module "
                "that it was made of",
                getattr(module, "original_name", type(module).__name__),
            )

    def _watch(self, hook: Hook, model: nn.Module) -> None:
        self._hook, self._model = hook, ref(model)
        self._parts.update(part for part in model.modules() if is_a_key(part))
        hook.register_module(model)
        if self._has_optimizer:
            hook.follow_optimizers()
        self._set_mode(model)
        for loss in list(self._losses):
            if not self._is_in_model(loss):
                hook.register_loss(loss)
        if is_wrapper(model):
            self._end()  # the graph shall not have us in it
        else:
            hook.look_for_losses()

    def _is_another(self, module: nn.Module) -> bool:
        """Tell whether another model is trained, for the first time that one is seen."""
        is_to_be_told = self._hook is not None and not self._has_met_another
        if not is_to_be_told or isinstance(module, torch.jit.ScriptModule):
            return False
        if _without_wrapper(module) is self._model():
            return False
        return torch.is_grad_enabled() and _is_trained(module)

    def _register_loss(self, loss: nn.Module) -> None:
        if self._hook is not None:
            self._hook.register_loss(loss)

    def _set_mode(self, model: nn.Module) -> None:
        mode = modes.TRAIN if model.training else modes.EVAL
        if self._hook is not None and self._hook.mode is not mode:
            self._hook.set_mode(mode)

    def _is_in_model(self, module: nn.Module) -> bool:
        return module in self._parts

    def _try(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            function(*arguments)
        except TrainingStoppedError:
            raise
        except Exception:
            logger.exception("looking for the model failed: the script runs as it is")
            self._end()


def _call_after(kind: type, name: str, callback: Callable[[Any], None]) -> None:
    original = getattr(kind, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        callback(self)
        return result

    setattr(kind, name, method)


def _call_before(kind: type, name: str, callback: Callable[[Any], None]) -> None:
    original = getattr(kind, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        callback(self)
        return original(self, *args, **kwargs)

    setattr(kind, name, method)


def _without_wrapper(module: nn.Module) -> nn.Module:
    """Return the model that the script wrote, where a wrapper hands its inputs on to it."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return _without_wrapper(module.get_submodule("module"))
    return module


def _is_being_made() -> bool:
    """Tell whether a module calls a part of itself in its `__init__`, as to learn of a shape."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and cheap
    while frame is not None:
        if frame.f_code.co_name == "__init__":
            names = frame.f_code.co_varnames
            if names and isinstance(frame.f_locals.get(names[0]), nn.Module):
                return True
        frame = frame.f_back
    return False


def _is_trained(module: nn.Module) -> bool:
    """Tell whether a module is one to train, and a script's own."""
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(module).__mro__):
        return False
    return any(parameter.requires_grad for parameter in module.parameters())
