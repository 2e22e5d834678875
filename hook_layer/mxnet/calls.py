"""What is registered with MXNet's blocks as hooks.

A block is copied and pickled with its hooks. A bound method of ours would drag the whole hook
along, locks and threads included, so blocks get a `BlockCall`: it knows its owner weakly, and turns
into something that does nothing where the block is copied.

MXNet goes through the hooks of a block without a copy of their list: one that is removed by a hook
of the same block would end the loop with an error. So what must be removed while its block calls
us stays where it is, and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from typing import Any, Final

from mxnet.gluon import Block
from mxnet.ndarray import NDArray

from hook_layer.weak_method import WeakMethod

__all__ = ["BlockCall", "BlockCallback", "BlockWatch", "arrays_in", "leaves_in"]

BlockCallback = Callable[[Block, Any, Any], None]
"""Called with a block, its inputs, and its outputs (None before its forward pass)."""


_being_called: Final[list[Any]] = []
"""The lists of hooks that MXNet goes through just now and has called us from."""


class BlockCall:
    """A forward hook, or pre-hook, that calls a method, whose owner it knows weakly."""

    def __init__(self, callback: BlockCallback) -> None:
        self._callback: WeakMethod[BlockCallback] | None = WeakMethod(callback)
        self._handle: Any = None

    @classmethod
    def before(cls, block: Block, callback: BlockCallback) -> BlockCall:
        """Call a method before a block's forward passes."""
        call = cls(callback)
        call._handle = block.register_forward_pre_hook(call)
        return call

    @classmethod
    def behind(cls, block: Block, callback: BlockCallback) -> BlockCall:
        """Call a method behind a block's forward passes."""
        call = cls(callback)
        call._handle = block.register_forward_hook(call)
        return call

    def __call__(self, block: Block, inputs: Any, outputs: Any = None) -> None:
        """Do what MXNet wants of a hook; it changes nothing."""
        callback = None if self._callback is None else self._callback()
        if callback is None:
            return
        _being_called.append(self._hooks())
        try:
            callback(block, inputs, outputs)
        finally:
            _being_called.pop()

    def remove(self) -> None:
        """Call the method no more."""
        self._callback = None
        hooks = self._hooks()
        if not any(hooks is other for other in _being_called):
            self._handle.detach()

    def _hooks(self) -> Any:
        return self._handle._hooks_dict_ref()  # noqa: SLF001 - no public way

    def __reduce__(self) -> tuple[Any, ...]:
        # The standard library's way to do nothing: who loads the model need not have this package.
        return getattr, (nullcontext(), "__exit__")


class BlockWatch:
    """Calls a method after the forward passes of chosen blocks; it knows the owner weakly."""

    def __init__(self, callback: BlockCallback) -> None:
        self._callback = WeakMethod(callback)  # its owner owns this
        self._watched: dict[Block, BlockCall] = {}

    def watch_only(self, blocks: AbstractSet[Block]) -> None:
        """Watch these blocks, and no others."""
        callback = self._callback()
        for block in self._watched.keys() - blocks:
            self._watched.pop(block).remove()
        if callback is not None:
            for block in blocks - self._watched.keys():
                self._watched[block] = BlockCall.behind(block, callback)


def leaves_in(value: Any) -> Iterator[Any]:
    """Return what is in nested lists, tuples and dicts, in order."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from leaves_in(item)


def arrays_in(value: Any) -> list[NDArray]:
    """Return the arrays in nested lists, tuples and dicts; symbols of a traced call are none."""
    leaves: Iterable[Any] = leaves_in(value)
    return [leaf for leaf in leaves if isinstance(leaf, NDArray)]
