"""Captures arrays of MXNet under their names."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mxnet import autograd
from mxnet.gluon import Block, HybridBlock, Parameter
from mxnet.ndarray import NDArray

from hook_layer.capture.captured_step import CapturedTensor, TensorBackend
from hook_layer.configuration.layer_collections import may_match, resolve_layers
from hook_layer.configuration.optimizer_collection import keep_apart
from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder
from hook_layer.core.state import HookState, Part
from hook_layer.core.tensor_capture import CaptureTensors, PlannedTensors, TensorSource
from hook_layer.core.workers import Workers
from hook_layer.guard import FailureLog, guarded
from hook_layer.mxnet.blocks import RegisteredBlocks, name_of, parts_of
from hook_layer.mxnet.calls import BlockWatch, arrays_in
from hook_layer.mxnet.capture import ArrayBackend
from hook_layer.mxnet.graphs import GraphWatch, Numbering

__all__ = ["BlockCapture", "MxnetTensors", "MxnetWorkers"]

logger = logging.getLogger("stepwatch")

_GRADIENT_PREFIX: Final = "gradient/"


class MxnetWorkers(Workers):
    """The ranks of Horovod."""

    supports_all = False
    framework = "MXNet"

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks; (0, 1) without Horovod."""
        horovod: Any = sys.modules.get("horovod.mxnet")
        if horovod is None or not horovod.is_initialized():
            return 0, 1
        return int(horovod.rank()), int(horovod.size())


class MxnetTensors(TensorSource):
    """Captures MXNet's arrays, and what numpy makes arrays of."""

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


class BlockCapture(Part):
    """Captures parameters, inputs and outputs of registered blocks."""

    def __init__(self, state: HookState, collector: Collector, recorder: Recorder) -> None:
        super().__init__(state)
        self.registered = RegisteredBlocks()
        self._collector = collector
        self._recorder = recorder
        self._numbering = Numbering()
        self._blocks = BlockWatch(self.capture_block)
        self._graphs = GraphWatch(state, self._on_graph_value, self._numbering)
        self._wanted_blocks: dict[tuple[Any, ...], set[Block]] = {}
        self._uncaptured: dict[str, Parameter] = {}
        self._refreshed: set[Block] = set()
        self._warned_of_sparse = False

    def prepare_collections(self, *, is_first: bool) -> None:
        """Make the collections fit the registered blocks.

        Raises:
            HookConfigurationError: A collection has a block that is not part of them (before the
                first step only).
        """
        manager = self._collector.manager
        keep_apart(manager)
        resolve_layers(
            manager, self.registered.names, self._collector.on_mistake(is_first=is_first)
        )

    def begin_step(self) -> None:
        """Note that a step began."""
        self._numbering.clear()
        self._graphs.reset()
        self._uncaptured.clear()

    def models_changed(self) -> None:
        """Note that another model is registered."""
        self._wanted_blocks.clear()

    def release(self) -> None:
        """Release the registered blocks."""
        self._unwatch_blocks()
        self._graphs.reset()
        self.registered = RegisteredBlocks()
        self._uncaptured.clear()
        self._wanted_blocks.clear()
        self._refreshed.clear()

    def begin_pass(self, model: Block, inputs: Any, *, is_new: bool) -> None:
        """Capture what is due of a model before its forward pass, and watch the rest."""
        if self._collector.due:
            if is_new:
                self._await_parameters(model)
            self._watch_blocks(model, inputs)
        elif is_new:
            self._unwatch_blocks()

    def end_pass(self, model: Block) -> None:
        """Capture what is due of a model after its forward pass."""
        self._graphs.leave(model)
        if self._uncaptured:
            self._capture_parameters()

    # Parameters ----------------------------------------------------------------------------------

    @guarded("blocks")
    def refresh(self, model: Block) -> None:
        """Look once, when a model is called, whether layers were added since it was registered."""
        if model not in self._refreshed:
            self._refreshed.add(model)
            self.registered.refresh(model)
            self._wanted_blocks.clear()

    @guarded("parameters")
    def _await_parameters(self, model: Block) -> None:
        """Capture a model's parameters, those without a value yet once they have one."""
        parameters = self.registered.parameters(model)
        planned = self._collector.planned({p.name: p for p in parameters})
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
        self.capture(arrays)

    def due_gradients(self, parameters: Iterable[Parameter]) -> dict[str, Parameter]:
        """Return the parameters whose gradients are due, by the names of these."""
        named = {_GRADIENT_PREFIX + p.name: p for p in parameters if p.grad_req != "null"}
        return {name: p for name, p in named.items() if self._collector.plan(name) is not None}

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
    def capture_block(self, block: Block, inputs: Any, outputs: Any) -> None:
        """Capture inputs and outputs of a block."""
        if self._collector.due:
            name = name_of(block)
            named = self.numbered(f"{name}_input_", inputs)
            self.capture(named | self.numbered(f"{name}_output_", outputs))

    @guarded("blocks")
    def _watch_blocks(self, model: Block, inputs: Any) -> None:
        """Watch the blocks whose inputs or outputs are due; a model that is a graph begins."""
        due = self._due_blocks()
        if not due:
            self._unwatch_blocks()
            return
        graphs = set(self.registered.graphs())
        inner = {part for graph in graphs for part in parts_of(graph) if part is not graph}
        self._blocks.watch_only(due - inner)
        self._graphs.watch_only(graphs - set(self.registered.models), due & inner)
        if isinstance(model, HybridBlock) and model in graphs:
            self._graphs.enter(model, inputs)

    def _unwatch_blocks(self) -> None:
        self._blocks.watch_only(frozenset())
        self._graphs.watch_only(frozenset(), frozenset())

    def _due_blocks(self) -> set[Block]:
        due = self._wanted_blocks.get(self._collector.due_key)
        if due is None:
            collections = self._collector.due
            due = self.registered.named_like(lambda name: may_match(collections, name))
            self._wanted_blocks[self._collector.due_key] = due
        return due

    @guarded("blocks")
    def _on_graph_value(self, name: str, array: NDArray) -> None:
        self.capture({name: array})

    # How -----------------------------------------------------------------------------------------

    def capture(self, arrays: Mapping[str, NDArray], member_of: tuple[str, ...] = ()) -> None:
        """Capture those of these arrays that are due."""
        self._recorder.capture(self._collector.planned(arrays, member_of))

    def numbered(self, prefix: str, value: Any) -> dict[str, NDArray]:
        """Return the arrays in `value` under `{prefix}{i}`; i continues counting in a step."""
        arrays = arrays_in(value)
        first = self._numbering.next(prefix, len(arrays))
        return {f"{prefix}{first + i}": array for i, array in enumerate(arrays)}
