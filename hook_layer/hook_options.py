"""Options of a hook that the original client does not have, and the account it gives."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from hook_layer.errors import HookConfigurationError, NotSupportedYetError, nearest
from hook_layer.stop_signal import DEFAULT_STOP_POLL_S
from hook_layer.writer import DEFAULT_MAX_WAIT_S, DEFAULT_QUEUE_BYTES, OnFull, WriterCounters

__all__ = ["HookOptions", "HookReport", "OnStop", "check_arguments"]

OnStop = Literal["raise", "flag"]
"""What a stop request does: raise `TrainingStoppedError`, or only set `hook.should_stop`."""


@dataclass(frozen=True)
class HookOptions:
    """Options beyond those of the original client.

    Attributes:
        statistics: Whether the index gets the statistics of every captured tensor.
        stop: What a stop request does.
        stop_poll_s: Time between two looks for a stop request, seconds.
        on_full: Whether training waits or a step is dropped when the writer's memory is full.
        queue_bytes: The writer's memory bound, bytes.
        close_timeout_s: How long `close` waits for what is not written yet, seconds; None: forever.
        max_wait_s: With `on_full="wait"`, how long training waits at most for memory while nothing
            is stored, seconds; after that steps are dropped.
    """

    statistics: bool = True
    stop: OnStop = "raise"
    stop_poll_s: float = DEFAULT_STOP_POLL_S
    on_full: OnFull = "wait"
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    close_timeout_s: float | None = 600.0
    max_wait_s: float = DEFAULT_MAX_WAIT_S

    def __post_init__(self) -> None:
        _one_of("stop", self.stop, ("raise", "flag"))
        _one_of("on_full", self.on_full, ("wait", "drop"))
        if not isinstance(self.statistics, bool):
            raise HookConfigurationError(f"statistics={self.statistics!r} must be True or False")
        for name in ("stop_poll_s", "queue_bytes", "close_timeout_s", "max_wait_s"):
            value = getattr(self, name)
            if value is None and name == "close_timeout_s":
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
                raise HookConfigurationError(f"{name}={value!r} must be a number above 0")


@dataclass(frozen=True)
class HookReport:
    """What a hook did so far.

    Attributes:
        steps_seen: Steps of training, saved or not.
        late_tensors: Tensors that came after their step had been handed over and are not saved.
        errors: Errors by part of the hook; `tensors` counts those that cost one tensor each.
        writer: What became of the saved steps.
    """

    steps_seen: int = 0
    late_tensors: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    writer: WriterCounters = field(default_factory=WriterCounters)

    @property
    def is_complete(self) -> bool:
        """Whether every step that was to be saved is stored, or still waits to be."""
        return not self.writer.steps_lost

    def __str__(self) -> str:
        counters = {f.name: getattr(self.writer, f.name) for f in fields(self.writer)}
        facts = {"steps_seen": self.steps_seen, "late_tensors": self.late_tensors, **counters}
        facts |= {f"errors in {part}": count for part, count in self.errors.items()}
        text = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
        return text if self.is_complete else f"not complete: {text}"


def check_arguments(
    export_tensorboard: bool, tensorboard_dir: str | None, include_workers: str
) -> None:
    """Refuse arguments that all hooks have in common and that make no sense.

    Raises:
        NotSupportedYetError: TensorBoard output was asked for.
        HookConfigurationError: `include_workers` is neither `one` nor `all`.
    """
    if export_tensorboard or tensorboard_dir is not None:
        raise NotSupportedYetError(
            f"export_tensorboard={export_tensorboard!r}, tensorboard_dir={tensorboard_dir!r}: this "
            "version writes no TensorBoard files; leave both out"
        )
    _one_of("include_workers", include_workers, ("one", "all"))


def _one_of(name: str, value: object, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise HookConfigurationError(f"{name}={value!r}: {nearest(str(value), valid)}")
