"""Captures arrays of MXNet under their names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from mxnet import autograd
from mxnet.gluon import Block, HybridBlock, Parameter
from mxnet.ndarray import NDArray

from hook_layer.capture import CapturedTensor, TensorBackend
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.hook import BaseHook
from hook_layer.core.tensor_capture import CaptureTensors, PlannedTensors, TensorSource
from hook_layer.core.workers import Workers
from hook_layer.guard import FailureLog, guarded
from hook_layer.layer_collections import may_match, resolve_layers
from hook_layer.mxnet.blocks import RegisteredBlocks, parts_of
from hook_layer.mxnet.calls import BlockWatch, arrays_in
from hook_layer.mxnet.capture import ArrayBackend
from hook_layer.mxnet.distributed import rank_and_size
from hook_layer.mxnet.graphs import GraphWatch, Numbering
from hook_layer.optimizer_collection import keep_apart

__all__ = ["GRADIENT_PREFIX", "MxnetCapture"]

logger = logging.getLogger("stepwatch")

GRADIENT_PREFIX = "gradient/"


class MxnetWorkers(Workers):
    """The ranks of Horovod."""

    supports_all = False
    framework = "MXNet"

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        return rank_and_size()


class MxnetTensors(TensorSource):
    """Captures MXNet's arrays, and what numpy makes arrays of.

    Args:
        failures: Counts tensors that cannot be captured.
    """

    def __init__(self, failures: FailureLog) -> None:
        super().__init__(failures)
        self._array_backend = ArrayBackend()

    def backend_of(self, value: Any) -> TensorBackend:
        """Return the backend that captures a value."""
        return self._array_backend if isinstance(value, NDArray) else super().backend_of(value)

    def capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture arrays outside of the graph that the script records."""
        backend = self._array_backend
        try:
            with autograd.pause():
                captured = capture(tensors)
            for name, tensor in captured.items():
                if tensor.raw is None and tensor.shown is None:
                    tensor.shown = backend.copy_of(tensors[name][0])  # so that it is accounted for
        finally:
            backend.forget()
        return captured


class MxnetCapture(BaseHook):
    """A hook that knows what there is to capture of registered blocks.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup, workers=MxnetWorkers(), source=MxnetTensors)
        self.recorder.before_end(self._before_end_step)
        self.state.when_closed(self._release_models)
        self._registered = RegisteredBlocks()
        self._numbering = Numbering()
        self._blocks = BlockWatch(self._on_block_forward)
        self._graphs = GraphWatch(
            self._on_graph_value, self._enter_graph, self._leave_graph, self._numbering
        )
        self._wanted_blocks: dict[tuple[Any, ...], set[Block]] = {}
        self._uncaptured: dict[str, Parameter] = {}
        self._refreshed: set[Block] = set()
        self._warned_of_sparse = False

    def _on_block_forward(self, block: Block, inputs: Any, outputs: Any) -> None:
        """Take inputs and outputs of a block."""
        raise NotImplementedError

    def _before_end_step(self) -> None:
        """Capture what is left of the open step."""
        raise NotImplementedError

    def _release_models(self) -> None:
        """Release the registered blocks."""
        raise NotImplementedError

    def _prepare_collections(self) -> None:
        """Make the collections fit the registered blocks.

        Raises:
            HookConfigurationError: A collection has a block that is not part of them (before the
                first step only).
        """
        on_mistake = self.collector.on_mistake(is_first=not self.clock.num_steps)
        keep_apart(self.collection_manager)
        resolve_layers(self.collection_manager, self._registered.names, on_mistake)

    def _begin_capture(self) -> None:
        """Note that a step began."""
        self._numbering.clear()
        self._graphs.reset()
        self._uncaptured.clear()

    # Parameters ----------------------------------------------------------------------------------

    @guarded("blocks")
    def _refresh(self, model: Block) -> None:
        """Look once, when a model is called, whether layers were added since it was registered."""
        if model not in self._refreshed:
            self._refreshed.add(model)
            self._registered.refresh(model)
            self._wanted_blocks.clear()

    @guarded("parameters")
    def _await_parameters(self, model: Block) -> None:
        """Capture a model's parameters, those without a value yet once they have one."""
        parameters = self._registered.parameters(model)
        planned = self.collector.planned({p.name: p for p in parameters})
        self._uncaptured = {name: parameter for name, (parameter, _) in planned.items()}
        self._capture_parameters()

    @guarded("parameters")
    def _capture_parameters(self) -> None:
        arrays = {}
        for name, parameter in list(self._uncaptured.items()):
            if parameter._stype != "default":  # noqa: SLF001 - no public way
                self._warn_of_sparse(name)
                del self._uncaptured[name]
                continue
            try:
                arrays[name] = parameter.list_data()[0]
            except RuntimeError:  # initialised when the shape of the inputs is known
                continue
            del self._uncaptured[name]
        self._capture_all(arrays)

    def _due_gradients(self, parameters: Iterable[Parameter]) -> dict[str, Parameter]:
        """Return the parameters whose gradients are due, by the names of these."""
        named = {GRADIENT_PREFIX + p.name: p for p in parameters if p.grad_req != "null"}
        return {name: p for name, p in named.items() if self.collector.plan(name) is not None}

    def _warn_of_sparse(self, name: str) -> None:
        if not self._warned_of_sparse:
            self._warned_of_sparse = True
            logger.warning(
                "values of %s and other sparse parameters are not saved, because MXNet "
                "keeps them in a store and returns only requested rows",
                name,
            )

    # Inputs and outputs of blocks ----------------------------------------------------------------

    @guarded("blocks")
    def _watch_blocks(self, model: Block, inputs: Any) -> None:
        """Watch the blocks whose inputs or outputs are due; a model that is a graph begins."""
        due = self._due_blocks()
        if not due:
            self._unwatch_blocks()
            return
        graphs = set(self._registered.graphs())
        inside = {part for graph in graphs for part in parts_of(graph) if part is not graph}
        self._blocks.watch_only(due - inside)
        self._graphs.watch_only(graphs - set(self._registered.models), due & inside)
        if isinstance(model, HybridBlock) and model in graphs:
            self._enter_graph(model, inputs, None)

    @guarded("blocks")
    def _enter_graph(self, graph: HybridBlock, inputs: Any, _: Any) -> None:
        self._graphs.enter(graph, inputs)

    @guarded("blocks")
    def _leave_graph(self, graph: Block, _: Any, __: Any) -> None:
        self._graphs.leave(graph)

    def _unwatch_blocks(self) -> None:
        self._blocks.watch_only(frozenset())
        self._graphs.watch_only(frozenset(), frozenset())

    def _due_blocks(self) -> set[Block]:
        due = self._wanted_blocks.get(self.collector.due_key)
        if due is None:
            collections = self.collector.due
            due = self._registered.named_like(lambda name: may_match(collections, name))
            self._wanted_blocks[self.collector.due_key] = due
        return due

    @guarded("blocks")
    def _on_graph_value(self, name: str, array: NDArray) -> None:
        self._capture_all({name: array})

    # How -----------------------------------------------------------------------------------------

    def _capture_all(self, arrays: Mapping[str, NDArray], member_of: tuple[str, ...] = ()) -> None:
        self.recorder.capture(self.collector.planned(arrays, member_of))

    def _numbered(self, prefix: str, value: Any) -> dict[str, NDArray]:
        """Return the arrays in `value` under `{prefix}{i}`; i continues counting in a step."""
        arrays = arrays_in(value)
        first = self._numbering.next(prefix, len(arrays))
        return {f"{prefix}{first + i}": array for i, array in enumerate(arrays)}
