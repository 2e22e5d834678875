"""Captures tensors of one step: types, statistics, values and reductions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from hook_layer.capture.byte_budget import ByteBudget
from hook_layer.capture.captured_step import (
    CapturedBatch,
    CapturedTensor,
    NumpyBackend,
    Snapshot,
    StatisticsBatch,
    TensorBackend,
    checked_name,
)
from hook_layer.capture.reductions import Reduction
from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.format.reductions import reduction_tensor_name
from hook_layer.guard import FailureLog

__all__ = ["CaptureTensors", "PlannedTensors", "TensorCapture", "TensorSource"]

logger = logging.getLogger("stepwatch")

PlannedTensors: TypeAlias = Mapping[str, tuple[Any, TensorPlan]]
"""Tensors of one framework by name, each with the plan of what to store."""
_T = TypeVar("_T")
CaptureTensors: TypeAlias = Callable[[PlannedTensors], dict[str, CapturedTensor]]


class TensorSource:
    """Captures the tensors of a framework; this class handles numpy arrays.

    A framework overrides the differences.
    """

    def __init__(self, failures: FailureLog) -> None:
        self.failures = failures
        self._numpy_backend = NumpyBackend()

    def backend_of(self, value: Any) -> TensorBackend:  # noqa: ARG002 - for frameworks
        """Return the backend for a value."""
        return self._numpy_backend

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape of a value."""
        return self.backend_of(value).describe(value)

    def batches(
        self,
        tensors: PlannedTensors,
        *,
        has_values: bool,  # noqa: ARG002
        has_statistics: bool,  # noqa: ARG002
    ) -> tuple[Sequence[CapturedBatch], PlannedTensors]:
        """Capture tensors in batches if possible, and return the others.

        Args:
            tensors: The tensors.
            has_values: Whether batches may contain values, because no limit applies to them.
            has_statistics: Whether each tensor gets statistics.
        """
        return (), tensors

    def capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture tensors, with the framework's preparation and cleanup.

        Args:
            tensors: The tensors; at least one.
            capture: Captures prepared tensors; at least one.
        """
        return capture(tensors)

    def send_statistics(self) -> None:
        """Send statistics that devices computed to the host, before the step is handed over."""


class TensorCapture:
    """Captures tensors; a tensor that fails is counted and skipped.

    Attributes:
        source: Captures tensors of the framework.
        budget: Limits the bytes of stored values.
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

    def parts(self, tensors: PlannedTensors) -> list[CapturedBatch | dict[str, CapturedTensor]]:
        """Capture the current tensors, at least one, in batches if possible."""
        batches, others = self.source.batches(
            tensors,
            has_values=self.budget.is_unlimited,
            has_statistics=self._with_statistics,
        )
        return [*batches, self.capture(others)] if others else [*batches]

    def capture(self, tensors: PlannedTensors) -> dict[str, CapturedTensor]:
        """Capture the current tensors of one framework.

        Args:
            tensors: The tensors; may be empty.
        """
        return self.source.capture(tensors, self.capture_prepared) if tensors else {}

    def capture_prepared(self, tensors: PlannedTensors) -> dict[str, CapturedTensor]:
        """Capture tensors that need no preparation.

        Args:
            tensors: The tensors; at least one.
        """
        backend = self.source.backend_of(next(iter(tensors.values()))[0])
        captured = self._described(backend, tensors)
        self._copy_values(backend, tensors, captured)
        for name in [*captured]:
            value, plan = tensors[name]
            if plan.reductions:
                captured[name].reductions = self._reduced(backend, name, value, plan.reductions)
        if self._with_statistics:
            self._add_statistics(backend, tensors, captured)
        return captured

    def _described(
        self, backend: TensorBackend, tensors: PlannedTensors
    ) -> dict[str, CapturedTensor]:
        """Describe type and shape of the tensors, and the rows to store."""
        captured = {}
        for name, (value, plan) in tensors.items():
            try:
                checked_name(name)
                tensor = CapturedTensor(*backend.describe(value))
            except Exception as error:  # noqa: BLE001 - one bad tensor must not affect the others
                self._failures.tensor_failed(name, error)
                continue
            captured[name] = tensor
            tensor.summaries = plan.summaries
            if plan.raw:
                tensor.is_of_parameter = plan.is_of_parameter
                if plan.raw_max_elements is not None or not self.budget.is_unlimited:
                    tensor.rows = self.budget.rows(name, tensor, plan.raw_max_elements)
        return captured

    def _copy_values(
        self,
        backend: TensorBackend,
        tensors: PlannedTensors,
        captured: dict[str, CapturedTensor],
    ) -> None:
        """Copy values that are stored or shown by TensorBoard; skip tensors that fail."""

        def copies(names: Sequence[str], *, whole: bool = False) -> Sequence[Snapshot]:
            rows = [None if whole else captured[name].rows for name in names]
            return backend.snapshots([tensors[name][0] for name in names], rows)

        stored = [n for n, tensor in captured.items() if tensors[n][1].raw and tensor.rows != 0]
        values = self._together(stored, copies)
        for name in stored:
            captured[name].raw = values.get(name)
            if captured[name].raw is None:
                del captured[name]
        shown = []
        for name, tensor in captured.items():
            if tensor.summaries is None:
                continue
            tensor.shown = tensor.raw if tensor.rows is None else None
            if tensor.shown is None and tensor.summaries.histograms and tensor.is_numeric:
                shown.append(name)
        for name, value in self._together(shown, partial(copies, whole=True)).items():
            captured[name].shown = value

    def _add_statistics(
        self,
        backend: TensorBackend,
        tensors: PlannedTensors,
        captured: Mapping[str, CapturedTensor],
    ) -> None:
        def started(names: Sequence[str]) -> list[tuple[StatisticsBatch, int]]:
            copies = [_whole_copy(captured[name]) for name in names]
            batch = backend.statistics([tensors[name][0] for name in names], copies)
            return [(batch, row) for row in range(len(names))]

        for name, (batch, row) in self._together([*captured], started).items():
            captured[name].statistics, captured[name].row = batch, row

    def _together(
        self, names: Sequence[str], compute: Callable[[Sequence[str]], Sequence[_T]]
    ) -> dict[str, _T]:
        """Compute a result for all tensors together, or for each alone if that fails.

        A tensor that fails alone is counted and skipped.
        """
        if not names:
            return {}
        try:
            return dict(zip(names, compute(names), strict=True))
        except Exception as error:  # noqa: BLE001 - one bad tensor must not affect the others
            if len(names) == 1:
                self._failures.tensor_failed(names[0], error)
                return {}
        found: dict[str, _T] = {}
        for name in names:
            found |= self._together([name], compute)
        return found

    def _reduced(
        self, backend: TensorBackend, name: str, value: Any, reductions: Sequence[Reduction]
    ) -> list[tuple[str, Any]]:
        reduced = []
        for reduction, absolute in reductions:
            try:
                snapshot = backend.reduce(value, (reduction, absolute))
            except (TypeError, ValueError, RuntimeError) as error:
                # E.g. the mean of integers or the minimum of an empty tensor; keep the tensor.
                self._failures.errors["reductions"] += 1
                if self._failures.errors["reductions"] == 1:
                    logger.warning("no %s of %s: %s", reduction, name, error)
                continue
            base = reduction_tensor_name(name, reduction, absolute=absolute)
            reduced.append((base, snapshot))
        return reduced


def _whole_copy(tensor: CapturedTensor) -> Snapshot | None:
    """Return a snapshot of all elements of a tensor, if there is one."""
    return tensor.shown or (tensor.raw if tensor.rows is None else None)
