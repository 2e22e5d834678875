"""Reports what a hook has done so far, and how long that took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hook_layer.delivery.counters import WriterCounters
from hook_layer.format.cut_values import CutValue, listed

__all__ = ["HookReport"]


@dataclass(frozen=True)
class HookReport:
    """Results of a hook so far.

    Attributes:
        steps_seen: Steps of training in this process, saved or not.
        late_tensors: Tensors that arrived after their step was handed over, and are not saved.
        errors: Errors by part of the hook; `tensors` counts tensors that could not be captured.
        writer: Results of the writer.
        training_s: Time that the training thread spent in the hook, including waits but not
            `close`, seconds.
        close_s: Duration of `close`, seconds.
        training_run: How often the training was resumed before this process.
        cut: Tensors whose values are cut; see `max_step_bytes`.
        not_captured: Why tensors were not captured, by name; two tensors per reason.
    """

    steps_seen: int = 0
    late_tensors: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    writer: WriterCounters = field(default_factory=WriterCounters)
    training_s: float = 0.0
    close_s: float = 0.0
    training_run: int = 0
    cut: Sequence[CutValue] = ()
    not_captured: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every step to save is stored, or waits to be stored in this process."""
        is_left = self.close_s > 0 and self.writer.steps_in_spool > 0
        return not self.writer.steps_lost and not is_left

    @property
    def training_s_per_step(self) -> float:
        """Time that the training thread spent in the hook, seconds per step; 0 before the first."""
        return self.training_s / self.steps_seen if self.steps_seen else 0.0

    def __str__(self) -> str:
        """Return a short report for people, without zero values."""
        writer = self.writer
        size = f", {_amount(writer.bytes_written)}" if writer.bytes_written else ""
        per_step_ms = 1000 * self.training_s_per_step
        close = f", {self.close_s:.3g} s to close" if self.close_s else ""
        lines = [
            f"steps seen: {self.steps_seen:,}, stored: {writer.steps_written:,}{size}",
            f"time in training: {self.training_s:.3g} s, {per_step_ms:.3g} ms a step{close}",
            _counts(("tensors stored", writer.tensors_written), ("resumed", self.training_run)),
            f"waits for memory: {writer.waits:,}, {writer.wait_s:.3g} s" if writer.waits else "",
            _counts(
                ("steps dropped", writer.steps_dropped),
                ("steps not delivered", writer.steps_undelivered),
                ("other files not delivered", writer.files_undelivered),
                ("steps that TensorBoard lacks", writer.tensorboard_steps_lost),
                ("steps with merged calls", writer.steps_shortened),
                ("tensors left out", writer.tensors_left_out),
                ("tensors that came too late", self.late_tensors),
            ),
            _counts(
                ("steps that waited on local disk", writer.steps_spooled),
                (f"still in {writer.spool_folder}", writer.steps_in_spool),
            ),
            _counts(
                *((f"errors in {part}", count) for part, count in self.errors.items()),
                ("errors while storing steps", writer.errors),
                ("errors with other files", writer.file_errors),
                ("errors of exporters", writer.export_errors),
            ),
            f"values cut to their first rows: {listed(self.cut)}" if self.cut else "",
            *(f"not captured: {name}: {reason}" for name, reason in self.not_captured.items()),
            f"first error: {writer.first_error}" if writer.first_error else "",
        ]
        text = "\n".join(filter(None, lines))
        return text if self.is_complete else f"not complete: {text}"


def _counts(*facts: tuple[str, int]) -> str:
    return ", ".join(f"{what}: {count:,}" for what, count in facts if count)


def _amount(num_bytes: int) -> str:
    """Return a readable amount of memory."""
    amount, units = float(num_bytes), ["GiB", "MiB", "KiB", "bytes"]
    while amount >= 1024 and len(units) > 1:  # noqa: PLR2004
        amount /= 1024
        units.pop()
    return f"{amount:.4g} {units[-1]}"
