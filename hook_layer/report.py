"""What a hook did so far, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hook_layer.writer import WriterCounters

__all__ = ["HookReport"]


@dataclass(frozen=True)
class HookReport:
    """What a hook did so far.

    Attributes:
        steps_seen: Steps of training in this process, saved or not.
        late_tensors: Tensors that came after their step had been handed over and are not saved.
        errors: Errors by part of the hook; `tensors` counts those that cost one tensor each.
        writer: What became of the saved steps.
        training_s: Time that the training thread spent in the hook, seconds, waiting included; what
            `close` takes is no part of it.
        close_s: Time that `close` took, seconds.
        training_run: How often the training was resumed before this process.
    """

    steps_seen: int = 0
    late_tensors: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    writer: WriterCounters = field(default_factory=WriterCounters)
    training_s: float = 0.0
    close_s: float = 0.0
    training_run: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every step that was to be saved is stored, or still waits to be."""
        return not self.writer.steps_lost

    @property
    def training_s_per_step(self) -> float:
        """Time that the training thread spent in the hook, seconds a step; 0 before the first."""
        return self.training_s / self.steps_seen if self.steps_seen else 0.0

    def __str__(self) -> str:
        """Return the account as a few lines for people; what did not happen is left out."""
        writer = self.writer
        lines = [
            _line(
                f"{self.steps_seen:,} steps seen, {writer.steps_written:,} stored",
                (writer.tensors_written, "tensors"),
                (_amount(writer.bytes_written), ""),
                (self.training_run, "times resumed"),
            ),
            f"{self.training_s:.3g} s of the training thread, "
            f"{1000 * self.training_s_per_step:.3g} ms a step"
            + (f"; {self.close_s:.3g} s to close" if self.close_s else ""),
        ]
        if writer.waits:
            lines.append(f"training waited {writer.waits:,} times, {writer.wait_s:.3g} s together")
        lost = _line(
            "",
            (writer.steps_dropped, "steps dropped"),
            (writer.steps_undelivered, "steps not delivered"),
            (writer.files_undelivered, "other files not delivered"),
            (writer.tensors_left_out, "tensors left out"),
            (self.late_tensors, "tensors came too late"),
        )
        spooled = _line(
            "",
            (writer.steps_spooled, "steps had to wait on local disk"),
            (writer.steps_in_spool, "of them wait there still"),
        )
        errors = _line(
            "",
            *((count, f"errors in {part}") for part, count in self.errors.items()),
            (writer.errors, "errors while storing steps"),
            (writer.file_errors, "errors with other files"),
            (writer.export_errors, "errors of exporters"),
        )
        lines += [line for line in (lost, spooled, errors) if line]
        if writer.first_error:
            lines.append(f"first error: {writer.first_error}")
        text = "\n".join(lines)
        return text if self.is_complete else f"not complete: {text}"


def _line(begin: str, *facts: tuple[int | str, str]) -> str:
    shown = [f"{n:,} {what}" if isinstance(n, int) else n for n, what in facts if n]
    return ", ".join([begin, *shown] if begin else shown)


def _amount(num_bytes: int) -> str:
    """Return an amount of memory for people; empty for none."""
    if not num_bytes:
        return ""
    amount = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":  # noqa: PLR2004
            return f"{amount:.4g} {unit}"
        amount /= 1024
    raise AssertionError
