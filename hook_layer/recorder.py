"""The steps of a hook: counted, filled with what is captured, and handed over to the writer.

When is a step handed over, and so visible to others? As soon as it is captured, not when the next
one begins. What a training script does behind that point (a `save_scalar` after the optimiser's
step, a second backward pass) is not known before it was seen once. So the first step stays open
until the next one begins; from the second on steps are handed over early, unless something was seen
to come late: then they stay open, too. A scalar or tensor that is saved when no step is open
(before the first one, or late for the first time), or in a step that the save configuration leaves
out, belongs to the next saved step, the newest of its name; other late tensors are counted and
logged. What is left when the hook is closed becomes a last step of its own. Nothing is lost
silently.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from hook_layer.byte_budget import ByteBudget
from hook_layer.capture import (
    CapturedTensor,
    NumpyBackend,
    Snapshot,
    StatisticsBatch,
    StepRecord,
    TensorBackend,
    checked_name,
)
from hook_layer.collection_manager import CollectionManager, TensorPlan
from hook_layer.collections import Collection
from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import reduction_tensor_name
from hook_layer.guard import FailureLog, Stopwatch
from hook_layer.reductions import Reduction

__all__ = ["INIT_STEP", "StepRecorder"]

logger = logging.getLogger("stepwatch")

INIT_STEP: Final = -1
_T = TypeVar("_T")


class StepRecorder:
    """Counts steps and gathers what is captured of each.

    Args:
        manager: The collections, which say what is due.
        with_statistics: Whether every captured tensor gets statistics.
        budget: How much of values is stored; None for no limit.

    Attributes:
        step: Global step, counted over all modes from 0; -1 before the first.
        mode: Current mode.
        mode_steps: Step of each mode; that of GLOBAL is the global step.
        failures: Which parts failed and are switched off.
        only_logs_mistakes: Whether a collection that is misconfigured is left out at the first step
            too, instead of an error: in scripts that know nothing of hooks.
        stopwatch: The time that this took of training.
    """

    def __init__(
        self,
        manager: CollectionManager,
        *,
        with_statistics: bool,
        budget: ByteBudget | None = None,
    ) -> None:
        self.step = self._init_step = INIT_STEP
        self.mode = ModeKeys.GLOBAL
        self.mode_steps = {ModeKeys.GLOBAL: INIT_STEP}
        self.failures = FailureLog()
        self.only_logs_mistakes = False
        self.stopwatch = Stopwatch()
        self.collection_manager = manager
        self._with_statistics = with_statistics
        self._numpy_backend = NumpyBackend()
        self._due: tuple[Collection, ...] = ()
        self._record: StepRecord | None = None
        self._pending: dict[str, CapturedTensor] = {}
        self._is_captured = self._saw_late_tensors = False
        self._modes_seen: set[ModeKeys] = set()
        self._num_late = 0
        self._budget = budget or ByteBudget()
        self._lock = threading.RLock()

    def _hand_over(self, record: StepRecord) -> None:
        """Take a step that is complete."""
        raise NotImplementedError

    def _backend_of(self, value: Any) -> TensorBackend:  # noqa: ARG002 - for adapters
        """Return the backend that captures this value."""
        return self._numpy_backend

    def _go_on_behind(self, step: int, mode_steps: Mapping[ModeKeys, int]) -> None:
        """Let the next step follow those of an interrupted training."""
        self.step = self._init_step = step
        self.mode_steps |= {**mode_steps, ModeKeys.GLOBAL: step}

    def _count_step(self) -> None:
        """Count a step of the current mode."""
        self.step += 1
        self.mode_steps[self.mode] += 1
        self.mode_steps[ModeKeys.GLOBAL] = self.step

    def _open_step(self) -> None:
        """Begin to record the step that was counted last."""
        mode_step = self.mode_steps[self.mode]
        self._is_captured = False
        self._due = self._due_collections(mode_step)
        self._record = StepRecord(self.step, self.mode, mode_step)
        if self._pending and self._due:
            self._record.tensors.update(self._pending)
            self._pending.clear()
        if self._due:
            self._budget.begin_step((self.mode, *(collection.name for collection in self._due)))

    def _end_step(self) -> None:
        """Hand the open step over, if there is one."""
        with self._lock:
            record, self._record = self._record, None
            if record is None:
                return
            if record.tensors:
                self._modes_seen.add(record.mode)
                self._budget.end_step(record.tensors)
                self._hand_over(record)

    def _step_is_captured(self) -> None:
        """Note that normally nothing follows in this step, and hand it over if that holds here."""
        with self._lock:
            self._is_captured = True
            is_known = self._record is not None and self._record.mode in self._modes_seen
            if is_known and not self._saw_late_tensors:
                self._end_step()

    def _plan(self, name: str, member_of: Sequence[str] = ()) -> TensorPlan | None:
        """Return what must be stored of a tensor in this step; None for nothing."""
        if not self._due:
            return None
        return self.collection_manager.plan(name, self._due, member_of=member_of)

    def _capture(self, tensors: Mapping[str, tuple[Any, TensorPlan]]) -> None:
        """Capture tensors of the step in progress, by name; all of one framework."""
        if not tensors:
            return
        with self._lock:
            self._saw_late_tensors |= self._is_captured
            if self._record is not None:
                self._record.tensors.update(self._captured(tensors))
                return
            if not self._num_late:
                logger.warning(
                    "%s and %d more tensors came after their step was written and are not "
                    "saved; from now on a step stays open until the next one begins",
                    next(iter(tensors)),
                    len(tensors) - 1,
                )
            self._num_late += len(tensors)

    def _capture_own(
        self, name: str, value: Any, plan: TensorPlan, wall_time: float | None = None
    ) -> None:
        """Capture a tensor that the training script saves itself; never too late."""
        with self._lock:
            captured = self._captured({name: (value, plan)}).get(name)
            if captured is None:
                return
            captured.wall_time = wall_time
            self._saw_late_tensors |= self._is_captured
            record = self._record if self._due else None
            target = self._pending if record is None else record.tensors
            target[name] = captured

    def _pending_record(self) -> StepRecord | None:
        """Return what waits for a saved step as a separate step after the last one."""
        if not self._pending:
            return None
        record = StepRecord(self.step + 1, self.mode, self.mode_steps[self.mode] + 1)
        record.tensors.update(self._pending)
        return record

    def _captured(self, tensors: Mapping[str, tuple[Any, TensorPlan]]) -> dict[str, CapturedTensor]:
        """Capture the tensors; one that cannot be is counted and left out."""
        backend = self._backend_of(next(iter(tensors.values()))[0])
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
        self, backend: TensorBackend, tensors: Mapping[str, tuple[Any, TensorPlan]]
    ) -> dict[str, CapturedTensor]:
        """Note type and shape of the tensors, and which rows of them must be stored."""
        captured = {}
        for name, (value, plan) in tensors.items():
            try:
                checked_name(name)
                tensor = CapturedTensor(*backend.describe(value))
            except Exception as error:  # noqa: BLE001 - one bad tensor must not cost the others
                self.failures.tensor_failed(name, error)
                continue
            captured[name] = tensor
            tensor.summaries = plan.summaries
            if plan.raw:
                tensor.is_of_parameter = plan.is_of_parameter
                tensor.rows = self._budget.rows(name, tensor, plan.raw_max_elements)
        return captured

    def _copy_values(
        self,
        backend: TensorBackend,
        tensors: Mapping[str, tuple[Any, TensorPlan]],
        captured: dict[str, CapturedTensor],
    ) -> None:
        """Copy what is stored, or shown by TensorBoard; a tensor without its value is left out."""

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
        tensors: Mapping[str, tuple[Any, TensorPlan]],
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
        """Compute something of all tensors together, or of each alone if that fails.

        A tensor that fails alone is counted, and left out.
        """
        if not names:
            return {}
        try:
            return dict(zip(names, compute(names), strict=True))
        except Exception as error:  # noqa: BLE001 - one bad tensor must not cost the others
            if len(names) == 1:
                self.failures.tensor_failed(names[0], error)
                return {}
        return {
            key: each for name in names for key, each in self._together([name], compute).items()
        }

    def _reduced(
        self, backend: TensorBackend, name: str, value: Any, reductions: Sequence[Reduction]
    ) -> list[tuple[str, Any]]:
        reduced = []
        for reduction, absolute in reductions:
            try:
                snapshot = backend.reduce(value, (reduction, absolute))
            except (TypeError, ValueError, RuntimeError) as error:
                # A mean of integers, a minimum of nothing: no reason to lose the tensor.
                self.failures.errors["reductions"] += 1
                if self.failures.errors["reductions"] == 1:
                    logger.warning("no %s of %s: %s", reduction, name, error)
                continue
            base = reduction_tensor_name(name, reduction, absolute=absolute)
            reduced.append((base, snapshot))
        return reduced

    def _due_collections(self, mode_step: int) -> tuple[Collection, ...]:
        # A mistake that is made while training runs must not end it.
        is_first = self.step == self._init_step + 1
        is_raised = is_first and not self.only_logs_mistakes
        on_mistake = None if is_raised else self.failures.mistaken
        return self.collection_manager.due(self.mode, mode_step, on_mistake)


def _whole_copy(tensor: CapturedTensor) -> Snapshot | None:
    """Return a snapshot of all elements of a tensor, where there is one."""
    return tensor.shown or (tensor.raw if tensor.rows is None else None)
