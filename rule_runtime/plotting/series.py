"""Numbers of tensors over the steps, as the lines of a picture.

Shape legend: P = points of a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.plotting.arguments import check_statistic
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.tidy_table import VALUE, TidyTable, tidy_table

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["Series", "series_of"]


@dataclass(frozen=True, eq=False)
class Series:
    """One number of one tensor, of one mode and worker, over the steps.

    Attributes:
        tensor: Name of the tensor.
        mode: Name of the mode.
        worker: Name of the worker.
        steps: Step, global or within the mode [P].
        numbers: The number [P]; NaN where the tensor had none.
    """

    tensor: str
    mode: str
    worker: str
    steps: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]


def series_of(
    trial: Trial,
    names: Iterable[str],
    statistic: str | None,
    *,
    mode: Mode = ModeKeys.GLOBAL,
    worker: str | None = None,
) -> tuple[str, list[Series]]:
    """Return which number it is, and its course for each tensor, mode and worker.

    Args:
        trial: The trial.
        names: The tensors.
        statistic: A statistic or `value`; None for the value if all tensors have one element, and
            the mean of the elements otherwise.
        mode: Steps of this mode only, counted in it; GLOBAL for all, counted globally.
        worker: Of this worker only; None for all.

    Raises:
        ValueError: If there is no such statistic.
        InvalidWorker: If there is no such worker.
    """
    check_statistic(statistic)
    mode = as_mode(mode)
    files = trial.step_files(mode, worker)
    if statistic in {None, VALUE}:
        wanted = [VALUE, "size", *(["mean"] if statistic is None else [])]
    else:
        wanted = [str(statistic)]
    table = tidy_table(trial.store, files, names, wanted)
    is_shown = np.ones(len(table), np.bool_)
    if statistic in {None, VALUE}:
        is_scalar = table.columns["size"] == 1
        if statistic is None:
            statistic = VALUE if is_scalar.all() else "mean"
        elif not is_scalar.any() and len(table):
            raise ValueError(
                f"none of {', '.join(table.tensor_names[:5])} has one element, and so no value to "
                "draw; choose a statistic"
            )
        else:
            is_shown = is_scalar
    return statistic or VALUE, _split(table, statistic or VALUE, mode, is_shown)


def _split(
    table: TidyTable, column: str, mode: ModeKeys, is_shown: npt.NDArray[np.bool_]
) -> list[Series]:
    """Return a column as one line for each tensor, mode and worker."""
    numbers = table.columns[column]
    steps = table.steps if mode is ModeKeys.GLOBAL else table.mode_steps
    order = np.lexsort((table.steps, table.workers, table.modes, table.tensors))
    order = order[is_shown[order]]
    keys = np.stack([table.tensors, table.modes, table.workers])[:, order]
    starts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    ends = [*starts[1:], len(order)]
    found = []
    for start, end in zip(starts, ends, strict=True) if len(order) else ():
        tensor, mode_code, worker_code = keys[:, start]
        rows = order[start:end]
        found.append(
            Series(
                table.tensor_names[tensor],
                table.mode_names[mode_code],
                table.worker_names[worker_code],
                steps[rows],
                numbers[rows],
            )
        )
    return found
