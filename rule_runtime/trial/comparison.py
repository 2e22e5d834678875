"""Compares two trials by the statistics of the tensors that both saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.trial.trial import Trial

__all__ = ["Comparison", "TensorDifference", "compare_trials"]

_KEYS: Final = ("mode", "mode_step", "worker", "tensor")
_STATISTICS: Final = ("size", "nan", "inf", "min", "max", "mean", "std", "abs_mean", "l2")
_COUNTS: Final = ("nan", "inf")


@dataclass(frozen=True)
class TensorDifference:
    """How a tensor differs between two trials.

    Attributes:
        tensor: Its name.
        num_common: Number of (step, worker) pairs at which both saved it.
        first_step: The first of these mode steps at which it differs; None if it never does.
        mode: The name of that step's mode; empty if it never differs.
        largest: The largest relative difference of a statistic; inf if only one is finite.
        not_comparable: Statistics that only one trial has at some step: the other saved neither
            values nor the statistic.
    """

    tensor: str
    num_common: int
    first_step: int | None
    mode: str
    largest: float
    not_comparable: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """The differences between two trials.

    Attributes:
        only_in_first: Names of tensors that only the first saved.
        only_in_second: Names of tensors that only the second saved.
        not_in_common: Names of tensors that both saved, but never at the same step.
        differences: The other tensors, sorted by the first step that differs, then by execution
            order.
    """

    only_in_first: Sequence[str]
    only_in_second: Sequence[str]
    not_in_common: Sequence[str]
    differences: Sequence[TensorDifference]

    @property
    def is_same(self) -> bool:
        """True if both saved the same tensors and no common value differs."""
        has_others = self.only_in_first or self.only_in_second or self.not_in_common
        return not has_others and all(each.first_step is None for each in self.differences)


def compare_trials(
    first: Trial,
    second: Trial,
    *,
    regex: str | Sequence[str] | None = None,
    tolerance: float = 1e-6,
) -> Comparison:
    """Compare the statistics of the tensors that two trials saved at the same steps of a mode.

    The relative difference of a and b is |a - b| / max(|a|, |b|). Numbers below 1e-12 count as
    zero. A statistic that only one trial saved is no difference.

    Args:
        first: A trial.
        second: The other trial.
        regex: Regular expressions; a tensor's name must match at least one of them.
        tolerance: Relative difference up to which two numbers are the same.

    Raises:
        ImportError: If pandas is not installed.
        re.error: If `regex` is not a regular expression.
        ValueError: If the tolerance is negative.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}, but must be 0 or more")
    names = [set(trial.select_tensors(regex)) for trial in (first, second)]
    tables = [trial.to_dataframe(regex=regex, statistics=_STATISTICS) for trial in (first, second)]
    joined = tables[0].merge(tables[1], on=list(_KEYS), suffixes=("", "_second"))
    found = [_difference(name, rows, tolerance) for name, rows in joined.groupby("tensor")]
    common = names[0] & names[1]
    places = _captured(first)
    nowhere = len(places)

    def by_first_step(found: TensorDifference) -> tuple[float, int, str]:
        step = np.inf if found.first_step is None else found.first_step
        return step, places.get(found.tensor, nowhere), found.tensor

    return Comparison(
        only_in_first=sorted(names[0] - names[1]),
        only_in_second=sorted(names[1] - names[0]),
        not_in_common=sorted(common - {each.tensor for each in found}),
        differences=sorted(found, key=by_first_step),
    )


def _captured(trial: Trial) -> Mapping[str, int]:
    """Return the positions of a trial's tensors in the order in which its hook captured them."""
    blocks = [
        file.index.statistics.tensors
        for file in trial.step_files()
        if file.index is not None and file.index.statistics is not None
    ]
    names = dict.fromkeys(name for block in dict.fromkeys(blocks) for name in block)
    return {name: place for place, name in enumerate(names)}


def _difference(name: Any, rows: Any, tolerance: float) -> TensorDifference:
    first, second = _Statistics(rows, ""), _Statistics(rows, "_second")
    compared = [_relative(each, first, second) for each in _STATISTICS]
    sizes = np.max([relative for relative, _ in compared], axis=0, initial=0.0)
    differ = rows[sizes > tolerance].sort_values("step")
    at = None if differ.empty else differ.iloc[0]
    lacking = [each for each, (_, lacks) in zip(_STATISTICS, compared, strict=True) if lacks]
    return TensorDifference(
        tensor=str(name),
        num_common=len(rows),
        first_step=None if at is None else int(at["mode_step"]),
        mode="" if at is None else str(at["mode"]),
        largest=float(sizes.max(initial=0.0)),
        not_comparable=lacking,
    )


class _Statistics:
    """The statistics of one trial's rows.

    Attributes:
        has_values: Whether they come from values [rows]; reductions have no size.
        has_non_finite: Whether the counts include an element that is not finite [rows].
    """

    def __init__(self, rows: Any, suffix: str) -> None:
        self._rows, self._suffix = rows, suffix
        self.has_values = ~np.isnan(self.column("size"))
        self.has_non_finite = (self.column("nan") > 0) | (self.column("inf") > 0)

    def column(self, name: str) -> npt.NDArray[np.float64]:
        return np.asarray(self._rows[f"{name}{self._suffix}"], np.float64)


def _relative(
    name: str, first: _Statistics, second: _Statistics
) -> tuple[npt.NDArray[np.float64], bool]:
    """Return |a - b| / max(|a|, |b|) [rows], and whether any row cannot be compared.

    The result is 0 if both are NaN or one is unknown, and inf if only one has no finite element.
    """
    a, b = first.column(name), second.column(name)
    if name in _COUNTS:  # reductions show only whether there are any
        is_exact = first.has_values & second.has_values
        a, b = (np.where(is_exact, each, np.sign(each)) for each in (a, b))
    with np.errstate(invalid="ignore"):
        sizes = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1e-12)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    lacks = _lacks(a, first, second) & ~np.isnan(b) | _lacks(b, second, first) & ~np.isnan(a)
    sizes = np.where(is_same | lacks, 0.0, np.where(np.isfinite(sizes), sizes, np.inf))
    return sizes, bool(lacks.any())


def _lacks(
    numbers: npt.NDArray[np.float64], own: _Statistics, other: _Statistics
) -> npt.NDArray[np.bool_]:
    """Return where a number is unknown [rows]. NaN without finite elements is known."""
    is_known = own.has_non_finite & (own.has_values | ~other.has_non_finite)
    lacking: npt.NDArray[np.bool_] = np.isnan(numbers) & ~is_known & (own.column("size") != 0)
    return lacking
