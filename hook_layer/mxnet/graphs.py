"""Captures inputs and outputs of blocks in a hybridized block.

A hybridized block runs as one graph: MXNet does not call the blocks in it. Their inputs and outputs
are values of the graph. MXNet calls the blocks with symbols while it traces the graph. So this
module traces each graph once more, with hooks on all its blocks, to find their values.

`CachedOp._register_op_hook` makes a graph report its values, always and at some microseconds each.
So a twin of the graph reports them. It replaces the graph in steps in which a value is due. It has
no `static_alloc`, which would report several operators as one.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from mxnet.base import NDArrayHandle
from mxnet.gluon import Block, HybridBlock
from mxnet.ndarray import CachedOp, NDArray
from mxnet.symbol import Symbol

from hook_layer.core.state import HookState, Part
from hook_layer.guard import guarded
from hook_layer.mxnet.blocks import name_of, parts_of
from hook_layer.mxnet.calls import BlockCall, arrays_in, leaves_in
from hook_layer.weak_method import WeakMethod

__all__ = ["GraphWatch", "Numbering"]

logger = logging.getLogger("stepwatch")

_callbacks: Final[list[Any]] = []
"""What graphs call. A loss holds its graph, so `backward` may call it after the hook is gone."""
_LEFT_OUT: Final = ("static_alloc", "static_shape", "inline_limit", "data_indices", "param_indices")


class Numbering:
    """Numbers the inputs and outputs of blocks within a step."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def clear(self) -> None:
        """Begin at 0 again."""
        self._counts.clear()

    def next(self, prefix: str, count: int) -> int:
        """Return the number of the next of `count` arrays, and count them."""
        first = self._counts.get(prefix, 0)
        self._counts[prefix] = first + count
        return first


class _Trace:
    """Maps values of a graph to blocks.

    MXNet names values by the prefix of the block that computes them, so those of a block that is
    called twice have the same names. While a graph is traced here each call has a prefix of its
    own.

    Attributes:
        inputs: The inputs of the graph, symbols.
        outputs: Its outputs, one symbol.
        members: Block, prefix of the name (`conv0_output_`), and number, by the value's name.
        counts: How many values have a prefix.
    """

    def __init__(self, graph: HybridBlock, inputs: Any) -> None:
        self.members: dict[str, list[tuple[Block, str, int]]] = {}
        self.counts: dict[tuple[Block, str], int] = {}
        self._num_calls = 0
        parts = [part for part in dict.fromkeys(parts_of(graph)) if part is not graph]
        replaced = [(graph, name) for name in ("_cached_graph", "_in_format", "_out_format")]
        replaced += [(part, name) for part in parts for name in ("_prefix", "_empty_prefix")]
        values = [getattr(block, name) for block, name in replaced]
        calls = [BlockCall.before(part, self._begins) for part in parts]
        calls += [BlockCall.behind(part, self._ended) for part in parts]
        self._prefixes = {part: part.prefix for part in parts}
        try:
            graph._cached_graph = ()  # noqa: SLF001 - no public way
            self.inputs, self.outputs = graph._get_graph(*inputs)  # noqa: SLF001
        finally:
            for (block, name), value in zip(replaced, values, strict=True):
                setattr(block, name, value)
            for call in calls:
                call.remove()

    def _begins(self, block: Block, _: Any, __: Any) -> None:
        self._num_calls += 1
        block._prefix = f"{self._prefixes[block]}call{self._num_calls}_"  # noqa: SLF001
        block._empty_prefix = False  # noqa: SLF001

    def _ended(self, block: Block, inputs: Any, outputs: Any) -> None:
        for kind, value in (("input", inputs), ("output", outputs)):
            prefix = f"{name_of(block)}_{kind}_"
            for symbol in leaves_in(value):
                for name in symbol.list_outputs() if isinstance(symbol, Symbol) else ():
                    number = self.counts.get((block, prefix), 0)
                    self.counts[block, prefix] = number + 1
                    self.members.setdefault(name, []).append((block, prefix, number))


@dataclass
class _Twin:
    """A graph that reports its values, and the original that it takes the place of."""

    original: CachedOp
    operator: CachedOp
    trace: _Trace


@dataclass
class _Running:
    """A graph that runs just now: its twin, and the names that its values are to have."""

    block: HybridBlock
    twin: _Twin
    names: Mapping[str, list[str]]
    unseen: set[str]


class GraphWatch(Part):
    """Calls back with inputs and outputs of blocks in hybridized blocks.

    Args:
        state: The state of the hook.
        callback: Method that is called with a name and an array, which is valid for the call; its
            owner is known weakly.
        numbering: Numbers of inputs and outputs.
    """

    def __init__(
        self, state: HookState, callback: Callable[[str, NDArray], None], numbering: Numbering
    ) -> None:
        super().__init__(state)
        self._callback = WeakMethod(callback)
        self._numbering = numbering
        self._twins: WeakKeyDictionary[HybridBlock, _Twin] = WeakKeyDictionary()
        self._calls: dict[HybridBlock, tuple[BlockCall, BlockCall]] = {}
        self._wanted: AbstractSet[Block] = frozenset()
        self._running: list[_Running] = []
        self._warned = False

    def watch_only(self, graphs: AbstractSet[HybridBlock], wanted: AbstractSet[Block]) -> None:
        """Watch these blocks in these graphs, and no others."""
        self._wanted = wanted
        for graph in self._calls.keys() - graphs:
            for call in self._calls.pop(graph):
                call.remove()
        for graph in graphs - self._calls.keys():
            calls = BlockCall.before(graph, self.enter), BlockCall.behind(graph, self.leave)
            self._calls[graph] = calls

    @guarded("blocks")
    def enter(self, graph: HybridBlock, inputs: Any, _: Any = None) -> None:
        """Put the twin in the graph's place: it is about to be called."""
        arrays = arrays_in(inputs)
        if not arrays or not any(part in self._wanted for part in parts_of(graph)):
            return
        if graph._backend:  # noqa: SLF001 - no public way
            self._warn(f"the blocks inside of {name_of(graph)}", f"the backend {graph._backend!r}")  # noqa: SLF001
            return
        if graph._cached_op is None:  # noqa: SLF001 - it is what the call is about to do
            with arrays[0].context:
                graph._build_cache(*inputs)  # noqa: SLF001
        twin = self._twins.get(graph)
        if twin is None or twin.original is not graph._cached_op:  # noqa: SLF001
            twin = self._make_twin(graph, inputs)
            if twin is None:
                self._warn(f"the blocks inside of {name_of(graph)}", "its trace, which varies,")
                return
            self._twins[graph] = twin
        graph._cached_op = twin.operator  # noqa: SLF001 - no public way
        names = self._names(twin.trace)
        self._running.append(_Running(graph, twin, names, set(names)))
        for symbol, array in zip(twin.trace.inputs, arrays, strict=False):
            self._report(symbol.name, array)

    @guarded("blocks")
    def leave(self, graph: Block, _: Any = None, __: Any = None) -> None:
        """Put the graph back where it was."""
        self._put_back(graph)

    def _put_back(self, graph: Block) -> None:
        while any(running.block is graph for running in self._running):
            running = self._running.pop()
            if running.block._cached_op is running.twin.operator:  # noqa: SLF001
                running.block._cached_op = running.twin.original  # noqa: SLF001
            if running.unseen:
                unseen = (name for value in running.unseen for name in running.names[value])
                self._warn(", ".join(sorted(unseen)), "its optimised graph")

    def reset(self) -> None:
        """Put all graphs back, also after an exception in a forward pass."""
        while self._running:
            running = self._running[0]
            running.unseen.clear()
            self._put_back(running.block)

    def _names(self, trace: _Trace) -> dict[str, list[str]]:
        """Return the names that the values of the next call have, by value."""
        first = {
            (block, prefix): self._numbering.next(prefix, count)
            for (block, prefix), count in trace.counts.items()
            if block in self._wanted
        }
        names: dict[str, list[str]] = {}
        for value, members in trace.members.items():
            due = [f"{p}{first[b, p] + number}" for b, p, number in members if (b, p) in first]
            if due:
                names[value] = due
        return names

    def _make_twin(self, graph: HybridBlock, inputs: Any) -> _Twin | None:
        trace = _Trace(graph, inputs)
        if trace.outputs.list_inputs() != graph._cached_graph[1].list_inputs():  # noqa: SLF001
            return None
        arguments = graph._cached_op_args  # noqa: SLF001
        flags = [(name, value) for name, value in graph._flags if name not in _LEFT_OUT]  # noqa: SLF001
        for name, is_data in (("data_indices", True), ("param_indices", False)):
            indexes = [i for i, (has_data, _) in enumerate(arguments) if has_data is is_data]
            flags.append((name, indexes))
        operator = CachedOp(trace.outputs, [*flags, ("inline_limit", 0)])
        operator._register_op_hook(_value_callback(WeakMethod(self._on_value)))  # noqa: SLF001
        _callbacks.append(operator._monitor_callback)  # noqa: SLF001
        return _Twin(graph._cached_op, operator, trace)  # noqa: SLF001

    def _on_value(self, name: str, array: NDArray) -> None:
        self._report(_name_in_symbols(name), array)

    def _report(self, value: str, array: NDArray) -> None:
        callback = self._callback()
        if not self._running or callback is None:
            return
        running = self._running[-1]
        for each in (value, f"{value}0"):
            if each in running.unseen:
                running.unseen.remove(each)
                for name in running.names[each]:
                    callback(name, array)

    def _warn(self, what: str, reason: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "inputs and outputs of hybridized blocks are not saved: %.500s; %s does "
                "not compute them as separate values",
                what,
                reason,
            )


def _name_in_symbols(name: str) -> str:
    """Return a value's name as symbols have it: operators that name no outputs have numbers."""
    head, _, number = name.rpartition("_")
    if not number.isdigit():
        return name
    return f"{head}_output" if number == "0" else f"{head}_output{number}"


def _value_callback(listener: WeakMethod[Callable[[str, NDArray], None]]) -> Callable[..., None]:
    """Return what MXNet calls with each value; it must free the array."""

    def call(name: bytes, _: bytes, handle: Any) -> None:
        array = NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)
        method = listener()
        if method is not None:
            method(name.decode(), array)

    return call
