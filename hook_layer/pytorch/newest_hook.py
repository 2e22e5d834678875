"""Lets one hook of a process watch a module: the one that registered it last.

A cell of a notebook that makes a hook is run again and again, on the same model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from torch import nn
from torch.optim import optimizer as optimizers

from hook_layer.process_end import ProcessEnd
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import ModuleCall, OptimizerCall

if TYPE_CHECKING:
    from hook_layer.pytorch.training_loop import TrainingLoop

__all__ = ["drop_calls", "watch_alone"]


_loops: Final[WeakSet[TrainingLoop]] = WeakSet()


def watch_alone(loop: TrainingLoop, module: nn.Module) -> None:
    """Let the loops of older hooks follow a model or loss no more, for this one is about to."""
    for older in list(_loops):
        if older is not loop and older.is_active:
            older.release(module)
    _loops.add(loop)
    # What hooks have left that are gone: no garbage collector may change what a pass goes through.
    drop_calls(module, None)
    for hooks in (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks):  # noqa: SLF001
        own_hooks.drop(lambda call: isinstance(call, OptimizerCall) and call.is_dead, hooks)
    ProcessEnd.finish_left()


def drop_calls(module: nn.Module, owner: object) -> None:
    """Drop the calls of an owner from a module and its parts; None: of those that are gone."""

    def is_dropped(hook: Any) -> bool:
        return isinstance(hook, ModuleCall) and hook.is_of(owner)

    for part in module.modules():
        flags = part._forward_hooks_with_kwargs, part._forward_hooks_always_called  # noqa: SLF001
        own_hooks.drop(is_dropped, part._forward_hooks, *flags)  # noqa: SLF001
        own_hooks.drop(is_dropped, part._forward_pre_hooks, part._forward_pre_hooks_with_kwargs)  # noqa: SLF001
