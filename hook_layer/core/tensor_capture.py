"""Captures tensors of one step: their types, statistics, values and reductions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hook_layer.byte_budget import ByteBudget
from hook_layer.capture import CapturedTensor, NumpyBackend, Snapshot, TensorBackend, checked_name
from hook_layer.collection_manager import TensorPlan
from hook_layer.format.reductions import reduction_tensor_name
from hook_layer.guard import FailureLog
from hook_layer.reductions import Reduction

__all__ = ["CaptureTensors", "PlannedTensors", "TensorCapture", "TensorSource"]

logger = logging.getLogger("stepwatch")

PlannedTensors: TypeAlias = Mapping[str, tuple[Any, TensorPlan]]
"""Tensors of one framework by name, each with what is stored of it."""
CaptureTensors: TypeAlias = Callable[[PlannedTensors], dict[str, CapturedTensor]]


class TensorSource:
    """How the tensors of a framework are captured; this class is for numpy's arrays.

    A framework overrides what differs.

    Args:
        failures: Counts tensors that cannot be captured.
    """

    def __init__(self, failures: FailureLog) -> None:
        self.failures = failures
        self._numpy_backend = NumpyBackend()

    def backend_of(self, value: Any) -> TensorBackend:  # noqa: ARG002 - for frameworks
        """Return the backend that captures a value."""
        return self._numpy_backend

    def capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture tensors, with preparations and cleanup that the framework requires.

        Args:
            tensors: The tensors; at least one.
            capture: Captures tensors that are prepared; at least one.
        """
        return capture(tensors)


class TensorCapture:
    """Captures tensors; one that cannot be captured is counted and skipped.

    Args:
        source: Where the tensors come from.
        failures: Counts tensors that cannot be captured.
        budget: How many bytes of values are stored.
        with_statistics: Whether each tensor gets statistics.

    Attributes:
        source: Where the tensors come from.
        budget: How many bytes of values are stored.
    """

    def __init__(
        self,
        source: TensorSource,
        failures: FailureLog,
        budget: ByteBudget | None = None,
        *,
        with_statistics: bool = True,
    ) -> None:
        self.source = source
        self.budget = budget or ByteBudget()
        self._failures = failures
        self._with_statistics = with_statistics

    def capture(self, tensors: PlannedTensors) -> dict[str, CapturedTensor]:
        """Capture tensors of one framework, as they are now.

        Args:
            tensors: The tensors; none is allowed.
        """
        return self.source.capture(tensors, self.capture_prepared) if tensors else {}

    def capture_prepared(self, tensors: PlannedTensors) -> dict[str, CapturedTensor]:
        """Capture tensors that need no preparation.

        Args:
            tensors: The tensors; at least one.
        """
        backend = self.source.backend_of(next(iter(tensors.values()))[0])
        described = {name: self._described(backend, name, v) for name, (v, _) in tensors.items()}
        captured = {name: tensor for name, tensor in described.items() if tensor is not None}
        for name, tensor in list(captured.items()):
            value, plan = tensors[name]
            if plan.raw and not self._has_value(backend, name, tensor, tensors[name]):
                del captured[name]
                continue
            if plan.reductions:
                tensor.reductions = self._reduced(backend, name, value, plan.reductions)
            if plan.summaries is not None:
                tensor.summaries = plan.summaries
                tensor.shown = tensor.raw if tensor.rows is None else None
                if tensor.shown is None and plan.summaries.histograms and tensor.is_numeric:
                    tensor.shown = self._snapshot(backend, name, value)
        if self._with_statistics:
            self._add_statistics(backend, {name: tensors[name][0] for name in captured}, captured)
        return captured

    def _has_value(
        self,
        backend: TensorBackend,
        name: str,
        tensor: CapturedTensor,
        planned: tuple[Any, TensorPlan],
    ) -> bool:
        """Capture as much of a value as is stored; False if it cannot be captured."""
        value, plan = planned
        tensor.is_of_parameter = plan.is_of_parameter
        tensor.rows = self.budget.rows(name, tensor, plan.raw_max_elements)
        if tensor.rows == 0:
            return True
        tensor.raw = self._snapshot(backend, name, value, tensor.rows)
        return tensor.raw is not None

    def _described(self, backend: TensorBackend, name: str, value: Any) -> CapturedTensor | None:
        try:
            checked_name(name)
            return CapturedTensor(*backend.describe(value))
        except Exception as error:  # noqa: BLE001 - one bad tensor must not cost the others
            self._failures.tensor_failed(name, error)
            return None

    def _snapshot(
        self, backend: TensorBackend, name: str, value: Any, rows: int | None = None
    ) -> Snapshot | None:
        try:
            return backend.snapshot(value) if rows is None else backend.snapshot(value, rows)
        except Exception as error:  # noqa: BLE001 - as above
            self._failures.tensor_failed(name, error)
            return None

    def _add_statistics(
        self,
        backend: TensorBackend,
        values: Mapping[str, Any],
        captured: Mapping[str, CapturedTensor],
    ) -> None:
        """Start the statistics of all tensors together, or one by one if that fails."""
        if not values:
            return
        try:
            copies = [_whole_copy(captured[name]) for name in values]
            batch = backend.statistics(list(values.values()), copies)
        except Exception as error:  # noqa: BLE001 - the values are worth saving without
            if len(values) == 1:
                self._failures.tensor_failed(next(iter(values)), error)
            else:
                for name, value in values.items():
                    self._add_statistics(backend, {name: value}, captured)
            return
        for row, name in enumerate(values):
            captured[name].statistics, captured[name].row = batch, row

    def _reduced(
        self, backend: TensorBackend, name: str, value: Any, reductions: Sequence[Reduction]
    ) -> list[tuple[str, Any]]:
        reduced = []
        for reduction, absolute in reductions:
            try:
                snapshot = backend.reduce(value, (reduction, absolute))
            except (TypeError, ValueError, RuntimeError) as error:
                # A mean of integers, a minimum of nothing: no reason to lose the tensor.
                self._failures.errors["reductions"] += 1
                if self._failures.errors["reductions"] == 1:
                    logger.warning("no %s of %s: %s", reduction, name, error)
                continue
            base = reduction_tensor_name(name, reduction, absolute=absolute)
            reduced.append((base, snapshot))
        return reduced


def _whole_copy(tensor: CapturedTensor) -> Snapshot | None:
    """Return a snapshot of all elements of a tensor, where there is one."""
    return tensor.shown or (tensor.raw if tensor.rows is None else None)
