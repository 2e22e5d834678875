"""One tensor of a trial over all its steps, with the methods of the original client's `Tensor`."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import reduction_tensor_name
from rule_runtime.trial.errors import (
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    TensorUnavailableForStep,
)
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.reductions import check_reduction, reduce_tensor
from rule_runtime.trial.tensor_reading import TensorReading, own

__all__ = ["Tensor"]

_KINDS_OF_NUMBERS: Final = frozenset("biufc")
_REDUCTIONS_OF_NOTHING: Final = frozenset({"sum", "prod", "l1", "l2"})


class Tensor(TensorReading):
    """One tensor of a trial.

    Args:
        name: Its name.
        trial: The trial.
    """

    def value(
        self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> npt.NDArray[Any]:
        """Return the tensor's value at a step, as an array that may be changed.

        Args:
            step_num: The step, counted in `mode`.
            mode: The mode.
            worker: Whose value; None for the first worker by name.

        Raises:
            TypeError: If the step is no number.
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
        """Raise an error: the original had this method once.

        Args:
            step_num: Taken for compatibility.
            mode: Likewise.
            worker: Likewise.

        Raises:
            SMDebugNotImplementedError: Always.
        """
        del step_num, mode, worker
        raise SMDebugNotImplementedError(
            "step method has been removed. Please use tensor.value "
            "or tensor.reduction_value methods"
        )

    def values(
        self, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, npt.NDArray[Any]]:
        """Return the tensor's values at all its steps, by step; the arrays may be changed.

        Args:
            mode: The mode.
            worker: Whose values; None for the first worker by name at each step.

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
        """Return the tensor's shape at a step; the value is read only if no index file has it.

        Args:
            step_num: The step, counted in `mode`.
            mode: The mode.
            worker: Whose shape; None for the first worker by name.

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
        """Return a reduction: as stored, else from the statistics, else from the value.

        Statistics are good to a relative error of 1e-5, and cost no request; they are left aside
        where some elements are not finite. Of no elements sum, l1 and l2 are 0, prod is 1, and all
        others are NaN.

        Args:
            step_num: The step, counted in `mode`.
            reduction_name: One of min, max, mean, median, std, variance, sum, prod, l1, l2.
            mode: The mode.
            worker: Whose; None for the first worker by name.
            abs: True for the reduction of the absolute values.

        Raises:
            SMDebugValueError: If there is no such reduction; a ValueError, too.
            ValueError: If the elements are no numbers.
            TensorUnavailableForStep: If nothing that was saved contains it.
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
            return own(stored)
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
        """Return the stored reductions by (name, of absolute values).

        Args:
            step_num: The step, counted in `mode`.
            mode: The mode.
            worker: Whose; None for the first worker by name.
        """
        file = self._file(step_num, as_mode(mode), worker)
        names = self._reduction_names(file)
        found = self._read_reductions(file, names)
        return {names[stored_name]: own(value) for stored_name, value in found.items()}
