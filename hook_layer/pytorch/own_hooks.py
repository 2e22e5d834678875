"""Hooks of ours in torch's objects: no copy has them, and they take no number from other hooks.

torch numbers all hooks of a process, and copies and stores a module with its hooks by these
numbers. Ours have numbers of their own. Where a dict of hooks is copied, pickled or sent to a
process, those with our numbers are left out: a copy is as if the model had never been watched.
"""

from __future__ import annotations

import copyreg
import itertools
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from torch import nn
from torch.utils.hooks import RemovableHandle

__all__ = ["drop", "put", "register", "take"]

_FIRST: Final = int.from_bytes(b"Stepwatc", "big")
"""The first of our numbers: nobody else counts up to it."""
_NUM: Final = 1 << 40
_numbers = itertools.count(_FIRST)


def register(function: Callable[..., Any], hook: Callable[..., Any], **options: Any) -> Any:
    """Register a hook of ours by a function of torch, and return torch's handle.

    Returns:
        The handle.
    """
    _leave_out_of_copies()
    others = RemovableHandle.next_id
    RemovableHandle.next_id = next(_numbers)
    try:
        return function(hook, **options)
    finally:
        RemovableHandle.next_id = others


def put(module: nn.Module, hook: Callable[..., Any], *, always_call: bool = False) -> int:
    """Put a forward hook of ours, called with keyword arguments, on a module; return its number.

    torch's own way takes ten times as long, and a saved step puts hundreds.

    Returns:
        Its number, for `take`.
    """
    _leave_out_of_copies()
    number = next(_numbers)
    module._forward_hooks[number] = hook  # noqa: SLF001
    module._forward_hooks_with_kwargs[number] = True  # noqa: SLF001
    if always_call:  # also where the pass raises an exception
        module._forward_hooks_always_called[number] = True  # noqa: SLF001
    return number


def take(module: nn.Module, number: int) -> None:
    """Take off the hook that `put` gave this number."""
    module._forward_hooks.pop(number, None)  # noqa: SLF001
    module._forward_hooks_with_kwargs.pop(number, None)  # noqa: SLF001
    module._forward_hooks_always_called.pop(number, None)  # noqa: SLF001


def drop(is_dropped: Callable[[Any], bool], hooks: dict[int, Any], *flags: dict[int, bool]) -> None:
    """Drop some hooks of ours, and the flags that are registered under their numbers."""
    for number in [number for number, hook in hooks.items() if is_dropped(hook)]:
        for registered in (hooks, *flags):
            registered.pop(number, None)


@cache
def _leave_out_of_copies() -> None:
    # The only place that copy, pickle and all that is built on them pass.
    reduced: Callable[[Any], Any] = copyreg.dispatch_table.get(OrderedDict, OrderedDict.__reduce__)

    def reduced_without_ours(hooks: OrderedDict[Any, Any]) -> Any:
        if any(map(_is_ours, hooks)):
            hooks = OrderedDict((key, hook) for key, hook in hooks.items() if not _is_ours(key))
        return reduced(hooks)

    copyreg.pickle(OrderedDict, reduced_without_ours)


def _is_ours(key: object) -> bool:
    return type(key) is int and _FIRST <= key < _FIRST + _NUM
