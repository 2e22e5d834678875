"""Counts what the writer did with its steps."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WriterCounters"]


@dataclass
class WriterCounters:
    """Counts what the writer did with its steps.

    Attributes:
        steps_written: Steps whose index file is stored.
        steps_dropped: Steps dropped because memory was not available in time.
        steps_undelivered: Steps that could neither be stored nor kept for later.
        steps_spooled: Steps that had to wait on local disk, because the store was unavailable.
        steps_in_spool: Steps that still wait there.
        steps_shortened: Steps with too many tensors for readers: a module's calls have one entry.
        spool_folder: The spool; None if nothing waits.
        tensors_written: Tensors in written steps.
        tensors_left_out: Tensors of written steps, or their values, that could not be encoded.
        bytes_written: Bytes of event and index files.
        waits: How often training waited for memory.
        wait_s: Total time of these waits, seconds.
        errors: Errors while storing steps.
        first_error: The first of them.
        file_errors: Errors while storing or removing other files.
        files_undelivered: Other files that were not stored by the end.
        export_errors: Errors of exporters.
        tensorboard_steps_lost: Steps missing in TensorBoard, because its files could not be stored.
    """

    steps_written: int = 0
    steps_dropped: int = 0
    steps_undelivered: int = 0
    steps_spooled: int = 0
    steps_in_spool: int = 0
    steps_shortened: int = 0
    spool_folder: str | None = None
    tensors_written: int = 0
    tensors_left_out: int = 0
    bytes_written: int = 0
    waits: int = 0
    wait_s: float = 0.0
    errors: int = 0
    first_error: str | None = None
    file_errors: int = 0
    files_undelivered: int = 0
    export_errors: int = 0
    tensorboard_steps_lost: int = 0

    @property
    def steps_lost(self) -> int:
        """Number of steps that should be stored, but never will be."""
        return self.steps_dropped + self.steps_undelivered
