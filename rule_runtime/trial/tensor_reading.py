"""Reading one tensor at many steps: values, stored reductions and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from hook_layer.format.reductions import split_reduction_name
from hook_layer.storage.base import ObjectNotFoundError
from rule_runtime.trial.event_reader import TensorReader, read_tensors
from rule_runtime.trial.people import TensorForPeople
from rule_runtime.trial.reductions import reduction_from_statistics
from rule_runtime.trial.step_index import is_remote

if TYPE_CHECKING:
    from hook_layer.format.index import TensorLocation
    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.trial import Trial

__all__ = ["TensorReading", "own"]

_PARALLEL_READS: Final = 10
"""As many connections as a boto3 client keeps."""

_Read = TypeVar("_Read")


class TensorReading(TensorForPeople):
    """What the files hold of one tensor.

    Args:
        name: Its name.
        trial: The trial.

    Attributes:
        cache: True if values are kept in memory.
    """

    def __init__(self, name: str, trial: Trial) -> None:
        super().__init__(name, trial)
        self.cache = trial.cache
        self._cached: dict[tuple[int, str], npt.NDArray[Any]] = {}
        self._reader = TensorReader(trial.store, name)
        # Files that were read together share what is equal, so it is looked through once.
        self._reductions: tuple[tuple[TensorLocation, ...], dict[str, tuple[str, bool]]] = ((), {})
        self._row: tuple[tuple[str, ...], int] = ((), -1)

    def _read(self, file: StepFile) -> npt.NDArray[Any] | None:
        """Return the value at a step, None if it was not saved; an event file may be waited for."""
        return self._patiently(file, lambda: self._read_now(file))

    def _read_own(self, file: StepFile) -> npt.NDArray[Any] | None:
        return self._as_own(self._read(file))

    def _as_own(self, value: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        if value is None:
            return None
        return value.copy() if self.cache else own(value)

    def _read_all(self, files: list[StepFile]) -> list[npt.NDArray[Any] | None]:
        """Return the value of each step as the caller's own, None where it was not saved."""
        if len(files) <= 1 or not is_remote(self.trial.store):
            return [self._read_own(file) for file in files]
        with ThreadPoolExecutor(max_workers=min(_PARALLEL_READS, len(files))) as pool:
            values = list(pool.map(self._read_if_there, files))
        # Only this thread may look for new files.
        return [
            self._read_own(file) if value is None else value
            for file, value in zip(files, values, strict=True)
        ]

    def _read_if_there(self, file: StepFile) -> npt.NDArray[Any] | None:
        try:
            return self._as_own(self._read_now(file))
        except ObjectNotFoundError:
            return None

    def _read_now(self, file: StepFile) -> npt.NDArray[Any] | None:
        key = (file.step, file.worker)
        value = self._cached.get(key)
        if value is None and file.index is not None:
            value = self._reader.read(file.index)
            if self.cache and value is not None:
                self._cached[key] = value
        return value

    def _read_reductions(self, file: StepFile, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
        """Return stored reductions by the names of their records."""
        index = file.index
        if index is None:
            return {}
        found = self._patiently(file, lambda: read_tensors(self.trial.store, index, names))
        return {} if found is None else found

    def _stored_reduction(self, file: StepFile, stored_name: str) -> npt.NDArray[Any] | None:
        if stored_name not in self._reduction_names(file):
            return None
        return self._read_reductions(file, [stored_name]).get(stored_name)

    def _reduction_names(self, file: StepFile) -> dict[str, tuple[str, bool]]:
        """Return the stored reductions: name of the record -> (reduction, of absolute values)."""
        locations = () if file.index is None else file.index.locations
        looked_at, names = self._reductions
        if locations is not looked_at:
            names = {}
            for row in locations:
                reduction = split_reduction_name(row.name)
                if reduction is not None and reduction[0] == self.name:
                    names[row.name] = (reduction[1], reduction[2])
            self._reductions = (locations, names)
        return names

    def _from_statistics(
        self, file: StepFile, reduction: str, *, absolute: bool
    ) -> np.float64 | None:
        block = None if file.index is None else file.index.statistics
        if block is None:
            return None
        tensors, at = self._row
        if block.tensors is not tensors:
            at = block.tensors.index(self.name) if self.name in block.tensors else -1
            self._row = (block.tensors, at)
        if at < 0:
            return None
        statistics = dict(zip(block.columns, block.values[at].tolist(), strict=True))
        known = reduction_from_statistics(statistics, reduction, absolute=absolute)
        return None if known is None else np.float64(known)

    def _patiently(self, file: StepFile, read: Callable[[], _Read]) -> _Read | None:
        """Read out of an event file, which may come after its index file where others upload it."""
        for _ in range(self.trial.event_file_retries):
            with suppress(ObjectNotFoundError):
                return read()
            if self.trial.has_gone_on(file):
                return None
            self.trial.wait_for_files()
        with suppress(ObjectNotFoundError):
            return read()
        return None


def own(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that may be changed: the same one, or a copy of what a file's bytes hold.

    Args:
        value: The array.
    """
    return value if value.flags.writeable else value.copy()
