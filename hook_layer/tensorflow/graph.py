"""What there is to capture in a graph of TensorFlow 1, and what of it a run of a session computes.

Only tensors that a run computes anyway may be fetched with it, and losses that follow from them:
others might need inputs that this run is not given, and would make it fail.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import tensorflow as tf

__all__ = ["Graphs", "graph_variables"]

_WITHOUT_VALUES: Final = (tf.resource, tf.variant, tf.string)
_BRANCHES: Final = ("RefSwitch", "Switch")
_MAX_KNOWN_RUNS: Final = 100


def graph_variables(graph: Any) -> dict[str, Any]:
    """Return the variables of a graph by name."""
    keys = tf.compat.v1.GraphKeys
    found = [
        v
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        for v in graph.get_collection(key)
    ]
    return {variable.name: variable for variable in found}


class Graphs:
    """Remembers which operations the runs of sessions execute."""

    def __init__(self) -> None:
        self._executed: WeakKeyDictionary[Any, dict[Any, _Run]] = WeakKeyDictionary()

    def fetchable(self, graph: Any, is_wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Return the tensors of a graph that can be fetched, without its variables, by name."""
        variables = graph_variables(graph)
        return {
            tensor.name: tensor
            for operation in graph.get_operations()
            for tensor in operation.outputs
            if tensor.name not in variables and is_wanted(tensor.name) and _has_value(tensor, graph)
        }

    def computed(
        self,
        graph: Any,
        run_args: Any,
        tensors: Mapping[str, Any],
        losses: Container[str] = (),
    ) -> dict[str, Any]:
        """Return those of some tensors that can be fetched with a run.

        Args:
            graph: The graph of all.
            run_args: What the run is given: its fetches, in any form that a session accepts, and
                what it is fed, in whose place nothing is computed.
            tensors: The tensors by name: those that the run computes.
            losses: Names of tensors that may also be computed for this: a training run computes
                gradients, which seldom need the loss itself.
        """
        roots = frozenset(_operations(graph, run_args.fetches))
        fed = frozenset(_fed(graph, run_args.feed_dict))
        known = self._executed.setdefault(graph, {})
        key = frozenset(operation.name for operation in roots), fed
        run = known.get(key)
        if run is None:
            if len(known) >= _MAX_KNOWN_RUNS:
                known.clear()
            run = known[key] = _Run(_ancestors(roots, fed=fed), fed)
        return {
            name: tensor
            for name, tensor in tensors.items()
            if run.computes(tensor) or (name in losses and run.may_add(tensor))
        }


class _Run:
    """What a run of a session executes."""

    def __init__(self, executed: frozenset[str], fed: frozenset[str]) -> None:
        self._executed = executed
        self._fed = fed
        self._may_add: dict[str, bool] = {}

    def computes(self, tensor: Any) -> bool:
        """Return whether a tensor has a value in this run."""
        return tensor.name in self._fed or tensor.op.name in self._executed

    def may_add(self, tensor: Any) -> bool:
        """Return whether a tensor follows from what the run computes, and from nothing else."""
        if tensor.name not in self._may_add:
            added = _ancestors([tensor.op], self._executed, self._fed)
            operations = [tensor.graph.get_operation_by_name(name) for name in added]
            # Another input may be missing; another read of a variable may come behind its update.
            self._may_add[tensor.name] = not any(
                operation.type == "Placeholder" or operation.op_def.is_stateful
                for operation in operations
            )
        return self._may_add[tensor.name]


def _has_value(tensor: Any, graph: Any) -> bool:
    """Return whether a tensor has one value of numbers in each run that computes it."""
    operation = tensor.op
    if tensor.dtype.base_dtype in _WITHOUT_VALUES or operation.type in _BRANCHES:
        return False
    # In a branch that is not taken, and in a loop, there is none to be fetched.
    context = getattr(operation, "_get_control_flow_context", lambda: None)()
    return context is None and bool(graph.is_fetchable(operation))


def _operations(graph: Any, fetches: Any) -> Iterator[Any]:
    if isinstance(fetches, (list, tuple, set, frozenset)):
        for item in fetches:
            yield from _operations(graph, item)
    elif isinstance(fetches, Mapping):
        yield from _operations(graph, list(fetches.values()))
    elif hasattr(fetches, "__attrs_attrs__"):
        yield from _operations(graph, [getattr(fetches, a.name) for a in fetches.__attrs_attrs__])
    elif fetches is not None:
        operation = getattr(fetches, "op", None)  # of tensors, variables, and what consists of some
        if operation is None:
            element = graph.as_graph_element(fetches)
            operation = getattr(element, "op", element)
        yield operation


def _fed(graph: Any, feed_dict: Mapping[Any, Any] | None) -> Iterator[str]:
    """Return the names of the tensors that a run is given."""
    for key in feed_dict or ():
        values = getattr(key, "values", None)  # of a sparse one, which consists of several
        parts = [key] if values is None else [values, key.indices, key.dense_shape]
        for part in parts:
            if part is not None:
                yield str(graph.as_graph_element(part, allow_operation=False).name)


def _ancestors(
    roots: Iterable[Any], without: Container[str] = (), fed: Container[str] = ()
) -> frozenset[str]:
    """Return the names of all operations that some depend on, and of these themselves.

    Operations of `without` are left out, and what only they depend on. Tensors that are fed depend
    on nothing.
    """
    waiting, found = list(roots), set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in found and operation.name not in without:
            found.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs if tensor.name not in fed]
            waiting += operation.control_inputs
    return frozenset(found)
