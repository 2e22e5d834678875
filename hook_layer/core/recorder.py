"""Collects the tensors of a step, and hands the step over to the writer.

A step is handed over as soon as it is complete, before the next one begins. The first step stays
open until the next step, because a script may save more after it seems complete (a `save_scalar`
after the optimizer step, a second backward pass). If that ever happens, later steps stay open, too.

A scalar or tensor that a script saves without an open saved step becomes part of the next saved
step; the newest value of a name wins. Other late tensors are counted and logged. Values left at the
end become part of the last step, whether it is saved or not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from hook_layer.capture.captured_step import CapturedTensor, StepRecord
from hook_layer.core.clock import StepClock
from hook_layer.core.collector import Collector
from hook_layer.core.events import Events, StepEnds
from hook_layer.core.tensor_capture import PlannedTensors, TensorCapture
from hook_layer.format.modes import ModeKeys

__all__ = ["Recorder"]

logger = logging.getLogger("stepwatch")


class Recorder:
    """Collects the tensors of a step.

    Attributes:
        record: The open step; None without any.
        is_captured: Whether the open step seems complete.
        saw_late_tensors: Whether any tensor arrived after its step seemed complete.
        num_late: Number of tensors that arrived after their step was handed over.
        is_skipped: Whether a step is open of which nothing is saved, not even a record.
        lock: Held while the open step changes.
    """

    def __init__(
        self,
        clock: StepClock,
        collector: Collector,
        tensor_capture: TensorCapture,
        hand_over: Callable[[StepRecord], None],
        events: Events,
    ) -> None:
        self.record: StepRecord | None = None
        self.is_captured = self.is_skipped = self.saw_late_tensors = False
        self.num_late = 0
        self.lock = threading.RLock()
        self._clock = clock
        self._collector = collector
        self._tensor_capture = tensor_capture
        self._hand_over = hand_over
        self._events = events
        self._pending: dict[str, CapturedTensor] = {}
        self._complete_modes: set[ModeKeys] = set()

    @property
    def is_between_steps(self) -> bool:
        """Whether no step is open, or only a complete one."""
        return self.is_captured or (self.record is None and not self.is_skipped)

    @property
    def is_step_unsaved(self) -> bool:
        """Whether the open step is not saved."""
        return self.is_skipped or (self.record is not None and not self._collector.due)

    @property
    def pending_names(self) -> list[str]:
        """Names of tensors that wait for the next saved step, sorted."""
        return sorted(self._pending)

    # A step --------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Open the newest counted step.

        Raises:
            HookConfigurationError: The collections are misconfigured (in the first step only).
        """
        clock, collector = self._clock, self._collector
        mode, mode_step = clock.mode, clock.mode_step
        self.is_captured = self.is_skipped = False
        collector.begin_step(mode, mode_step, is_first=clock.num_steps == 1)
        self.record = StepRecord(clock.step, mode, mode_step)
        if not collector.due:
            return
        if self._pending:
            self.record.add(self._pending)
            self._pending = {}
        names = (collection.name for collection in collector.due)
        self._tensor_capture.budget.begin_step((mode, *names))

    def skip_step(self) -> None:
        """Open the newest counted step, of which nothing is saved."""
        if self.record is not None:
            self.end_step()
        self.is_captured, self.is_skipped = False, True

    def capture(self, tensors: PlannedTensors, *, is_late: bool = True) -> None:
        """Capture tensors of the open step.

        Args:
            tensors: The tensors.
            is_late: Whether later steps stay open if this step seemed complete before.
        """
        if not tensors:
            return
        with self.lock:
            if is_late and self.is_captured:
                self.saw_late_tensors = True
            if self.record is not None:
                self.record.add(*self._tensor_capture.parts(tensors))
                return
            if not self.num_late:
                logger.warning(
                    "%s and %d more tensors came after their step was written and are not "
                    "saved; from now on a step stays open until the next one begins",
                    next(iter(tensors)),
                    len(tensors) - 1,
                )
            self.num_late += len(tensors)

    def capture_own(self, tensors: PlannedTensors, wall_time: float | None = None) -> None:
        """Capture tensors that the script saves, if needed in the next saved step."""
        with self.lock:
            captured = self._tensor_capture.capture(tensors)
            for tensor in captured.values():
                tensor.wall_time = wall_time
            if captured and self.is_captured:
                self.saw_late_tensors = True
            if self.record is not None and self._collector.due:
                self.record.add(captured)
            else:
                self._pending.update(captured)

    def capture_for_next(self, tensors: PlannedTensors) -> None:
        """Capture tensors for the next saved step; the newest value of a name wins."""
        with self.lock:
            self._pending.update(self._tensor_capture.capture(tensors))

    def step_is_captured(self) -> None:
        """Note that the step seems complete; hand it over unless steps have had late tensors."""
        with self.lock:
            self.is_captured = True
            if self.saw_late_tensors or self._clock.mode not in self._complete_modes:
                return
            self.is_skipped = False
            if self.record is not None:
                self.end_step()

    def step_continues(self) -> None:
        """Note that more tensors of the open step follow."""
        self.is_captured = False

    def end_step(self) -> None:
        """Hand the open step over, if there is one."""
        if self.record is None and not self.is_skipped:
            return
        self._events.emit(StepEnds())
        with self.lock:
            record, self.record, self.is_skipped = self.record, None, False
            if record is not None and record.num_tensors:
                self._complete_modes.add(record.mode)
                self._tensor_capture.source.send_statistics()
                self._tensor_capture.budget.end_step(record.single_tensors)
                self._hand_over(record)

    def release(self) -> None:
        """Release the captured tensors of the open step, which stays open."""
        with self.lock:
            if self.record is not None:
                self.record.clear()

    def discard(self) -> None:
        """Discard the open step without writing it."""
        with self.lock:
            self.release()
            self.record = None

    # The end -------------------------------------------------------------------------------------

    def pending_record(self) -> StepRecord | None:
        """Return the pending values as part of the last step; without one, as the first step."""
        if not self._pending:
            return None
        clock = self._clock
        record = StepRecord(clock.step, clock.mode, clock.mode_step)
        if not clock.num_steps or clock.mode_step < 0:
            record.move_on()
        record.add({**self._pending})
        return record

    def take_pending(self) -> StepRecord | None:
        """Return the result of `pending_record`, and clear it."""
        record = self.pending_record()
        self._pending.clear()
        return record
