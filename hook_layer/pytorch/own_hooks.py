"""Registers Stepwatch's hooks with torch: they are not copied, and use no hook ids of torch.

torch numbers all hooks of a process, and copies and stores a module with its hooks by number.
Stepwatch's hooks have ids of their own. Copies and pickles of a dict of hooks leave these ids out,
so a copied module behaves as if it had never been watched.
"""

from __future__ import annotations

import copyreg
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from torch import nn
from torch.utils.hooks import RemovableHandle

__all__ = ["drop", "put", "register", "take"]

_FIRST: Final = int.from_bytes(b"Stepwatc", "big")
"""The first id of Stepwatch's hooks; torch never counts this far."""
_NUM: Final = 1 << 40
_numbers = itertools.count(_FIRST)
_registering: Final = threading.RLock()


def register(function: Callable[..., Any], hook: Callable[..., Any], **options: Any) -> Any:
    """Register a hook with a function of torch.

    Returns:
        torch's handle.
    """
    _leave_out_of_copies()
    with _registering:
        others = RemovableHandle.next_id
        RemovableHandle.next_id = next(_numbers)
        try:
            return function(hook, **options)
        finally:
            RemovableHandle.next_id = others


def put(module: nn.Module, hook: Callable[..., Any], *, always_call: bool = False) -> int:
    """Set a forward hook with keyword arguments on a module.

    torch's own function takes ten times as long, and a saved step sets hundreds.

    Returns:
        The hook's id, for `take`.
    """
    _leave_out_of_copies()
    number = next(_numbers)
    module._forward_hooks[number] = hook  # noqa: SLF001
    module._forward_hooks_with_kwargs[number] = True  # noqa: SLF001
    if always_call:  # also if the pass raises an exception
        module._forward_hooks_always_called[number] = True  # noqa: SLF001
    return number


def take(module: nn.Module, number: int) -> None:
    """Remove the hook with an id that `put` returned."""
    module._forward_hooks.pop(number, None)  # noqa: SLF001
    module._forward_hooks_with_kwargs.pop(number, None)  # noqa: SLF001
    module._forward_hooks_always_called.pop(number, None)  # noqa: SLF001


def drop(is_dropped: Callable[[Any], bool], hooks: dict[int, Any], *flags: dict[int, bool]) -> None:
    """Remove some of Stepwatch's hooks, and the flags with their ids."""
    for number in [number for number, hook in hooks.items() if is_dropped(hook)]:
        for registered in (hooks, *flags):
            registered.pop(number, None)


@cache
def _leave_out_of_copies() -> None:
    # Copying, pickling and everything built on them use this entry.
    reduced: Callable[[Any], Any] = copyreg.dispatch_table.get(OrderedDict, OrderedDict.__reduce__)

    def reduced_without_ours(hooks: OrderedDict[Any, Any]) -> Any:
        if any(map(_is_ours, hooks)):
            hooks = OrderedDict((key, hook) for key, hook in hooks.items() if not _is_ours(key))
        return reduced(hooks)

    copyreg.pickle(OrderedDict, reduced_without_ours)


def _is_ours(key: object) -> bool:
    return type(key) is int and _FIRST <= key < _FIRST + _NUM
