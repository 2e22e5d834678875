"""One tensor of a trial over all its steps, with the methods of the original's `Tensor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import reduction_tensor_name, split_reduction_name
from hook_layer.storage.base import ObjectNotFoundError
from rule_runtime.trial.errors import (
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    TensorUnavailableForStep,
)
from rule_runtime.trial.event_reader import TensorReader, read_tensors
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.notebook import tensor_description, tensor_facts, tensor_html
from rule_runtime.trial.reductions import check_reduction, reduce_tensor, reduction_from_statistics
from rule_runtime.trial.step_index import is_remote
from rule_runtime.trial.tensor_steps import TensorSteps

if TYPE_CHECKING:
    from hook_layer.format.index import TensorLocation
    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.trial import Trial

__all__ = ["Tensor"]

_PARALLEL_READS: Final = 10
"""Number of connections that a boto3 client keeps."""
_KINDS_OF_NUMBERS: Final = frozenset("biufc")
_REDUCTIONS_OF_NOTHING: Final = frozenset({"sum", "prod", "l1", "l2"})

_Read = TypeVar("_Read")


class Tensor(TensorSteps):
    """One tensor of a trial.

    Steps are counted in the given mode. The default worker is the first one by name.

    Attributes:
        cache: True if values are kept in memory.
    """

    def __init__(self, name: str, trial: Trial) -> None:
        super().__init__(name, trial)
        self.cache = trial.cache
        self._cached: dict[tuple[int, str], npt.NDArray[Any]] = {}
        self._reader = TensorReader(trial.store, name)
        # Files that were read together share equal objects; process each once.
        self._reductions: tuple[tuple[TensorLocation, ...], dict[str, tuple[str, bool]]] = ((), {})

    def value(
        self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> npt.NDArray[Any]:
        """Return the tensor's value at a step, as a writable array.

        Raises:
            TypeError: If the step is not a number.
            StepUnavailable: If the step was not saved.
            StepNotYetAvailable: If the step may still come.
            InvalidWorker: If the worker did not save the tensor at the step.
            TensorUnavailableForStep: If the tensor's value was not saved at the step.
            RecordError: If the event file is damaged.
        """
        mode = as_mode(mode)
        file = self._file(step_num, mode, worker)
        value = self._read_own(file)
        if value is None:
            has_reductions = bool(self._reduction_names(file))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return value

    def step(
        self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> NoReturn:
        """Raise an error: the original removed this method."""
        del step_num, mode, worker
        raise SMDebugNotImplementedError(
            "step method has been removed. Please use tensor.value "
            "or tensor.reduction_value methods"
        )

    def values(
        self, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, npt.NDArray[Any]]:
        """Return the tensor's values at all its steps, by step, as writable arrays.

        Raises:
            InvalidWorker: If the worker did not save the tensor at one of the steps.
            TensorUnavailableForStep: If the tensor's value was not saved at one of the steps.
            RecordError: If an event file is damaged.
        """
        mode = as_mode(mode)
        steps = self.steps(mode)
        files = [self._file(step, mode, worker) for step in steps]
        values = {}
        for step, file, value in zip(steps, files, self._read_all(files), strict=True):
            if value is None:
                has_reductions = bool(self._reduction_names(file))
                raise TensorUnavailableForStep(self.name, step, mode, has_reductions)
            values[step] = value
        return values

    def shape(
        self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """Return the tensor's shape at a step; reads the value only if no index file has the shape.

        Raises:
            ShapeUnavailableForStep: If neither shape nor value was saved.
        """
        mode = as_mode(mode)
        file = self._file(step_num, mode, worker)
        index = (file if worker is not None else self._whole(file)).index
        for row in index.shapes if index is not None else ():
            if row.name == self.name:
                return row.shape
        if index is not None and index.statistics is not None:
            shapes = zip(index.statistics.tensors, index.statistics.shapes, strict=True)
            for name, shape in shapes:
                if name == self.name:
                    return shape
        value = self._read(file)
        if value is None:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        return tuple(value.shape)

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: Mode = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,  # noqa: A002 - the original's keyword
    ) -> Any:
        """Return a reduction: as stored, otherwise from the statistics, otherwise from the value.

        Statistics have a relative error up to 1e-5 and need no request; they are not used if some
        elements are not finite. Without elements, sum, l1 and l2 are 0, prod is 1, and all others
        are NaN.

        Args:
            step_num: The step, counted in `mode`.
            reduction_name: One of min, max, mean, median, std, variance, sum, prod, l1, l2.
            mode: The mode.
            worker: Name of the worker; None for the first one by name.
            abs: True for the reduction of the absolute values.

        Raises:
            SMDebugValueError: If there is no such reduction; also a ValueError.
            ValueError: If the elements are not numbers.
            TensorUnavailableForStep: If no saved data contains it.
        """
        mode = as_mode(mode)
        file = self._file(step_num, mode, worker)
        try:
            check_reduction(reduction_name)
        except ValueError as error:
            raise SMDebugValueError(f"Invalid reduction type {reduction_name}: {error}") from None
        stored_name = reduction_tensor_name(self.name, reduction_name, absolute=abs)
        stored = self._stored_reduction(file, stored_name)
        if stored is not None:
            return _own(stored)
        whole = file if worker is not None else self._whole(file)
        known = self._from_statistics(whole, reduction_name, absolute=abs)
        if known is not None:
            return known
        value = self._read(file)
        if value is None:
            asked = f"abs_{reduction_name}" if abs else reduction_name
            raise TensorUnavailableForStep(self.name, step_num, mode, reduction=asked)
        if value.dtype.kind not in _KINDS_OF_NUMBERS:
            raise ValueError(
                f"{self.name!r} holds elements of the type {value.dtype}, which have no "
                f"{reduction_name}; reductions need numbers"
            )
        if not value.size and reduction_name not in _REDUCTIONS_OF_NOTHING:
            return np.float64(np.nan)
        return reduce_tensor(value, reduction_name, absolute=abs)

    def reduction_values(
        self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], npt.NDArray[Any]]:
        """Return the stored reductions by (name, whether of absolute values)."""
        file = self._file(step_num, as_mode(mode), worker)
        names = self._reduction_names(file)
        found = self._read_reductions(file, names)
        return {names[stored_name]: _own(value) for stored_name, value in found.items()}

    # ------------------------------------------------------------------ notebook views

    def facts(self) -> dict[str, str]:
        """Return the tensor's newest shape and type, and its steps, as readable text."""
        return tensor_facts(self.name, self._modes, self._newest())

    def description(self) -> dict[str, Any]:
        """Return the tensor's newest shape and type, and its steps, as JSON."""
        return tensor_description(self.name, self._modes, self._newest())

    def __repr__(self) -> str:
        message = ", ".join(text for text in self.facts().values() if text)
        return f"<Tensor {self.name!r}: {message}>"

    def _repr_html_(self) -> str:
        return tensor_html(self.name, {"trial": self.trial.path, **self.facts()}, self._newest())

    def _newest(self) -> StepFile | None:
        if not self._files:
            return None
        of_step = self._files[max(self._files)]
        return of_step[min(of_step)]

    # ------------------------------------------------------------------ reading

    def _read(self, file: StepFile) -> npt.NDArray[Any] | None:
        """Return the value at a step; None if it was not saved. It may wait for an event file."""
        return self._patiently(file, lambda: self._read_now(file))

    def _read_own(self, file: StepFile) -> npt.NDArray[Any] | None:
        return self._as_own(self._read(file))

    def _as_own(self, value: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        if value is None:
            return None
        return value.copy() if self.cache else _own(value)

    def _read_all(self, files: list[StepFile]) -> list[npt.NDArray[Any] | None]:
        """Return the value of each step as a writable array; None if it was not saved."""
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
        """Return the stored reductions: record name -> (reduction, whether of absolute values)."""
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
        at = self._reader.row_in(block)
        if at < 0:
            return None
        statistics = dict(zip(block.columns, block.values[at].tolist(), strict=True))
        known = reduction_from_statistics(statistics, reduction, absolute=absolute)
        return None if known is None else np.float64(known)

    def _patiently(self, file: StepFile, read: Callable[[], _Read]) -> _Read | None:
        """Read from an event file; retries, because it may be uploaded after its index file."""
        for _ in range(self.trial.event_file_retries):
            with suppress(ObjectNotFoundError):
                return read()
            if self.trial.has_gone_on(file):
                return None
            self.trial.wait_for_files()
        with suppress(ObjectNotFoundError):
            return read()
        return None


def _own(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a writable array: a copy if it is backed by a file's bytes."""
    return value if value.flags.writeable else value.copy()
