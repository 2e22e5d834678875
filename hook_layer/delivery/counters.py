"""What became of the steps that were handed to the writer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WriterCounters"]


@dataclass
class WriterCounters:
    """What became of the steps that were handed over.

    Attributes:
        steps_written: Steps whose index file is stored.
        steps_dropped: Steps given up because there was no memory for them (in time).
        steps_undelivered: Steps that could not be stored, nor kept to be stored later.
        steps_spooled: Steps that had to wait on local disk, since the store was away.
        steps_in_spool: Those of them that wait there still.
        steps_shortened: Steps with too many tensors for readers: the calls of a module have one
            entry.
        spool_folder: Where; None while nothing waits.
        tensors_written: Tensors in written steps.
        tensors_left_out: Tensors of written steps, or values of them, that could not be encoded.
        bytes_written: Bytes of event and index files.
        waits: How often training waited for memory.
        wait_s: For how long together, seconds.
        errors: Errors while storing steps.
        first_error: The first of them.
        file_errors: Errors while storing or removing other files.
        files_undelivered: Other files that could not be stored until the end.
        export_errors: Errors of exporters.
        tensorboard_steps_lost: Steps that TensorBoard lacks, for its files could not be stored.
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
        """Steps that were to be saved, are not stored, and will not be."""
        return self.steps_dropped + self.steps_undelivered
