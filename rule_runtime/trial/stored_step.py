"""What the index files of one step say of the step itself."""

from __future__ import annotations

from collections.abc import Mapping

from hook_layer.format.index import IndexFile
from hook_layer.format.modes import ModeKeys
from rule_runtime.trial.errors import InvalidWorker
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tensor_rows import index_of

__all__ = ["StoredStep"]


class StoredStep:
    """One step of a run, as every worker wrote it.

    Args:
        step: Global step.
        files: Its index files by worker, parsed, sorted, at least one.
        num_workers: How many workers write in this run.

    Attributes:
        step: Global step.
        mode: Mode of the step.
        mode_step: Step within the mode.
        workers: The workers that wrote the step, sorted.
        is_complete: True if every worker of the run wrote it.
    """

    __slots__ = (
        "_files",
        "_num_workers",
        "is_complete",
        "mode",
        "mode_step",
        "step",
        "workers",
    )

    def __init__(self, step: int, files: Mapping[str, StepFile], *, num_workers: int) -> None:
        self._files = files
        self._num_workers = num_workers
        first = self._first
        self.step = step
        self.mode: ModeKeys = first.mode
        self.mode_step: int = first.mode_step
        self.workers: tuple[str, ...] = tuple(files)
        self.is_complete = len(files) >= num_workers

    @property
    def time(self) -> float | None:
        """When the first worker began the step, in seconds since 1970; None if no file has it."""
        times = [index_of(file).time for file in self._files.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def run(self) -> str | None:
        """RunId of the run that the step is of; None for files of the original client."""
        return self._first.run

    @property
    def index_keys(self) -> list[str]:
        """Keys of the step's index files, sorted."""
        return sorted(file.key for file in self._files.values())

    def stage(self, worker: str) -> int | None:
        """Return the number of the pipeline stage that a worker trains; None without a pipeline.

        Args:
            worker: Whose.

        Raises:
            InvalidWorker: If no such worker wrote this step.
        """
        return self._index_of(worker).stage

    def value_bytes(self, worker: str) -> dict[str, int]:
        """Return how many bytes the record of each tensor of a worker has; without one, none.

        Args:
            worker: Whose.

        Raises:
            InvalidWorker: If no such worker wrote this step.
        """
        return {row.name: row.length for row in self._index_of(worker).locations}

    @property
    def _first(self) -> IndexFile:
        return index_of(next(iter(self._files.values())))

    def _index_of(self, worker: str) -> IndexFile:
        if worker not in self._files:
            raise InvalidWorker(worker)
        return index_of(self._files[worker])
