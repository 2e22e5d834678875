"""Series of numbers of tensors over the steps, the lines of a plot.

Shape legend: R = rows of a table, P = points of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.plotting.arguments import check_statistic
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.tidy_table import VALUE, TidyTable, tidy_table

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["Series", "series_of"]

_COUNTS: Final = ("size", "nan", "inf")
_OF_GRADIENTS: Final = ("abs_mean", "l2", "l1", "mean", "std", "max", "min")
_OF_OTHERS: Final = ("mean", "abs_mean", "l2", "l1", "std", "max", "min")
_GRADIENT: Final = "gradient/"
_MAX_NAMES: Final = 5
_DIGITS: Final = re.compile(r"([0-9]+)")


@dataclass(frozen=True, eq=False)
class Series:
    """One statistic of one tensor, mode and worker over the steps.

    Attributes:
        tensor: Name of the tensor.
        mode: Name of the mode.
        worker: Name of the worker.
        steps: Step, global or within the mode [P].
        numbers: The statistic [P]; NaN if missing or unknown.
        not_finite: Whether the tensor had NaN or Inf and so no finite number [P].
        run: Name of the trial, if several are drawn.
    """

    tensor: str
    mode: str
    worker: str
    steps: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    not_finite: npt.NDArray[np.bool_]
    run: str = ""

    @property
    def is_known(self) -> bool:
        """True if the number is known at any step."""
        return bool((np.isfinite(self.numbers) | self.not_finite).any())


def series_of(
    trial: Trial,
    names: Iterable[str],
    statistic: str | None,
    *,
    mode: Mode = ModeKeys.GLOBAL,
    worker: str | None = None,
) -> tuple[str, list[Series]]:
    """Return the chosen statistic, and its series for each tensor, mode and worker.

    Names are in natural order: `l2` before `l10`.

    Args:
        trial: The trial.
        names: The tensors.
        statistic: A statistic or `value`. None for the value if all tensors have one element;
            otherwise for `abs_mean` of gradients and the mean of others. If another statistic was
            saved for more tensors, that one is used.
        mode: Only steps of this mode, counted in it; GLOBAL for all, counted globally.
        worker: Only this worker; None for all.

    Raises:
        ValueError: If there is no such statistic, or it is unknown everywhere.
        InvalidWorker: If there is no such worker.
    """
    check_statistic(statistic)
    mode = as_mode(mode)
    files = trial.step_files(mode, worker)
    table = tidy_table(trial.store, files, names, _columns(statistic))
    if statistic is None:
        statistic = _default(table)
    is_known = _is_known(table, "size" if statistic == VALUE else statistic)
    if len(table) and not is_known.any():
        others = tidy_table(trial.store, files, table.tensor_names, _OF_OTHERS)
        raise _not_saved(statistic, others)
    is_shown = _scalars(table) if statistic == VALUE else np.ones(len(table), np.bool_)
    return statistic, _split(table, statistic, mode, is_shown)


def _columns(statistic: str | None) -> list[str]:
    if statistic is None:
        return [VALUE, *_COUNTS, *_OF_OTHERS]
    return list(dict.fromkeys((statistic, *_COUNTS)))


def _default(table: TidyTable) -> str:
    """Return the most informative number of all rows."""
    if (table.columns["size"] == 1).all():
        return VALUE
    names = {table.tensor_names[at] for at in set(table.tensors)}
    of_gradients = all(name.startswith(_GRADIENT) for name in names)
    return max(
        _OF_GRADIENTS if of_gradients else _OF_OTHERS,
        key=lambda name: np.count_nonzero(np.isfinite(table.columns[name])),
    )


def _scalars(table: TidyTable) -> npt.NDArray[np.bool_]:
    """Return which rows are one-element tensors [R]."""
    is_scalar: npt.NDArray[np.bool_] = table.columns["size"] == 1
    if not is_scalar.any() and len(table):
        raise ValueError(
            f"no tensor of {_few(table.tensor_names)} has one element, so there is no "
            "value to plot; choose a statistic"
        )
    return is_scalar


def _not_finite(table: TidyTable) -> npt.NDArray[np.bool_]:
    """Return where saved counts prove that the tensor had NaN or Inf [R]."""
    proof: npt.NDArray[np.bool_] = (table.columns["nan"] > 0) | (table.columns["inf"] > 0)
    return proof


def _is_known(table: TidyTable, column: str) -> npt.NDArray[np.bool_]:
    known: npt.NDArray[np.bool_] = np.isfinite(table.columns[column]) | _not_finite(table)
    return known


def _not_saved(statistic: str, table: TidyTable) -> ValueError:
    known = [name for name in sorted(_OF_OTHERS) if np.isfinite(table.columns[name]).any()]
    of = _few(sorted((table.tensor_names[at] for at in set(table.tensors)), key=_natural))
    verb = "was" if len(known) == 1 else "were"
    if not known:
        return ValueError(f"of {of} no statistic was saved that can be drawn")
    return ValueError(f"{statistic} of {of} was not saved; {', '.join(known)} {verb}")


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key for natural order: numbers in names are compared by value."""
    parts = _DIGITS.split(name)  # a text, a number, a text, ...
    digits = [part.lstrip("0") for part in parts[1::2]]
    key = [(0, part) for part in parts]
    key[1::2] = [(len(number), number) for number in digits]
    return key, name


def _split(
    table: TidyTable, column: str, mode: ModeKeys, is_shown: npt.NDArray[np.bool_]
) -> list[Series]:
    """Split a column into one line per tensor, mode and worker."""
    numbers = table.columns[column]
    not_finite = ~np.isfinite(numbers) & _not_finite(table)
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
                not_finite[rows],
            )
        )
    places = {name: place for place, name in enumerate(table.mode_names)}
    return sorted(
        found, key=lambda line: (_natural(line.tensor), places[line.mode], _natural(line.worker))
    )
