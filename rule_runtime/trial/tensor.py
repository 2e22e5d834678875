"""One tensor of a trial over all its steps, with the methods of the original client's `Tensor`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import reduction_tensor_name, split_reduction_name
from hook_layer.storage.base import ObjectNotFoundError
from rule_runtime.numerics.reductions import reduce_tensor, reduction_from_statistics
from rule_runtime.trial.errors import (
    ShapeUnavailableForStep,
    TensorUnavailableForStep,
)
from rule_runtime.trial.event_reader import read_tensors
from rule_runtime.trial.step_index import is_remote
from rule_runtime.trial.tensor_steps import TensorSteps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.trial import Trial

__all__ = ["Tensor"]

_PARALLEL_READS: Final = 16


class Tensor(TensorSteps):
    """One tensor of a trial.

    Args:
        name: Its name.
        trial: The trial.
    """

    def __init__(self, name: str, trial: Trial) -> None:
        super().__init__(name, trial)
        self._cached: dict[tuple[int, str], npt.NDArray[Any]] = {}

    # ------------------------------------------------------------------ values

    def value(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> npt.NDArray[Any]:
        """Return the tensor's value at a step.

        Args:
            step_num: The step, counted in `mode`.
            mode: The mode.
            worker: Whose value; None for the first worker by name.

        Raises:
            StepUnavailable: If the step was not saved.
            StepNotYetAvailable: If the step may still come.
            NoMoreData: If the training ended before the step.
            InvalidWorker: If the worker did not save the tensor at the step.
            TensorUnavailableForStep: If the tensor's value was not saved at the step.
            RecordError: If the event file is damaged.
        """
        file = self._file(step_num, mode, worker)
        value = self._read(file)
        if value is None:
            has_reductions = bool(self._reduction_names(file))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return value

    def values(
        self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, npt.NDArray[Any]]:
        """Return the tensor's values at all its steps, by step.

        Args:
            mode: The mode.
            worker: Whose values; None for the first worker by name at each step.

        Raises:
            InvalidWorker: If the worker did not save the tensor at one of the steps.
            TensorUnavailableForStep: If the tensor's value was not saved at one of the steps.
            RecordError: If an event file is damaged.
        """
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
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """Return the tensor's shape at a step; the value is read only if nothing else tells it.

        Args:
            step_num: The step, counted in `mode`.
            mode: The mode.
            worker: Whose shape; None for the first worker by name.

        Raises:
            ShapeUnavailableForStep: If neither shape nor value was saved.
        """
        file = self._file(step_num, mode, worker)
        index = file.index
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

    # ------------------------------------------------------------------ reductions

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,  # noqa: A002 - the original's keyword
    ) -> Any:
        """Return a reduction: as stored, else from the value, else from the statistics.

        Args:
            step_num: The step, counted in `mode`.
            reduction_name: One of min, max, mean, std, variance, sum, prod, l1, l2.
            mode: The mode.
            worker: Whose; None for the first worker by name.
            abs: True for the reduction of the absolute values.

        Raises:
            ValueError: If there is no such reduction.
            TensorUnavailableForStep: If nothing that was saved tells it.
        """
        file = self._file(step_num, mode, worker)
        stored_name = reduction_tensor_name(self.name, reduction_name, absolute=abs)
        stored = self._read_names(file, [stored_name]).get(stored_name)
        if stored is not None:
            return stored
        value = self._read(file)
        if value is not None:
            return reduce_tensor(value, reduction_name, absolute=abs)
        block = None if file.index is None else file.index.statistics
        if block is not None and self.name in block.tensors:
            row = block.values[block.tensors.index(self.name)]
            statistics = dict(zip(block.columns, map(float, row), strict=True))
            told = reduction_from_statistics(statistics, reduction_name, absolute=abs)
            if told is not None:
                return np.float64(told)
        raise TensorUnavailableForStep(reduction_name, step_num, mode)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], npt.NDArray[Any]]:
        """Return the stored reductions by (name, of absolute values).

        Args:
            step_num: The step, counted in `mode`.
            mode: The mode.
            worker: Whose; None for the first worker by name.
        """
        file = self._file(step_num, mode, worker)
        names = self._reduction_names(file)
        found = self._read_names(file, names)
        return {names[stored_name]: value for stored_name, value in found.items()}

    # ------------------------------------------------------------------ reading

    def _read(self, file: StepFile) -> npt.NDArray[Any] | None:
        key = (file.step, file.worker)
        if key not in self._cached:
            value = self._read_names(file, [self.name]).get(self.name)
            if value is None or not self.trial.cache:
                return value
            self._cached[key] = value
        return self._cached[key]

    def _read_all(self, files: list[StepFile]) -> list[npt.NDArray[Any] | None]:
        if len(files) <= 1 or not is_remote(self.trial.store):
            return [self._read(file) for file in files]
        with ThreadPoolExecutor(max_workers=min(_PARALLEL_READS, len(files))) as pool:
            return list(pool.map(self._read, files))

    def _read_names(self, file: StepFile, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
        if file.index is None:
            return {}
        try:
            return read_tensors(self.trial.store, file.index, names)
        except ObjectNotFoundError:
            return {}

    def _reduction_names(self, file: StepFile) -> dict[str, tuple[str, bool]]:
        names = {}
        for row in file.index.locations if file.index is not None else ():
            reduction = split_reduction_name(row.name)
            if reduction is not None and reduction[0] == self.name:
                names[row.name] = (reduction[1], reduction[2])
        return names
