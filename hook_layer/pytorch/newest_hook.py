"""Makes the newest hook replace older hooks of the same module.

For example, a notebook cell that creates a hook may run again on the same model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from torch import nn

from hook_layer.core.state import HookState
from hook_layer.process.process_end import ProcessEnd
from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import STEP_BEGINS, STEP_ENDED, ModuleCall

if TYPE_CHECKING:
    from hook_layer.pytorch.events import TorchEvents

__all__ = ["drop_calls", "watch_alone"]


_loops: Final[WeakSet[TorchEvents]] = WeakSet()


def watch_alone(loop: TorchEvents, module: nn.Module) -> None:
    """Make older hooks release a model or loss that this one is about to watch."""
    for older in list(_loops):
        if older is not loop and older.is_active:
            older.release(module)
    _loops.add(loop)
    # Also remove calls of deleted hooks, so that garbage collection cannot change a running pass.
    drop_calls(module, None)
    STEP_BEGINS.forget()
    STEP_ENDED.forget()
    ProcessEnd.finish_left()


def drop_calls(module: nn.Module, state: HookState | None) -> None:
    """Remove the calls of a hook, or with None of deleted hooks, from a module and its parts."""

    def is_dropped(hook: Any) -> bool:
        return isinstance(hook, ModuleCall) and hook.is_of(state)

    for part in module.modules():
        flags = part._forward_hooks_with_kwargs, part._forward_hooks_always_called  # noqa: SLF001
        own_hooks.drop(is_dropped, part._forward_hooks, *flags)  # noqa: SLF001
        own_hooks.drop(is_dropped, part._forward_pre_hooks, part._forward_pre_hooks_with_kwargs)  # noqa: SLF001
