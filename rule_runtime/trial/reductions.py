"""Reduces a tensor to one number, with the reduction names of the original client."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["check_reduction", "reduce_tensor", "reduction_from_statistics"]

_REDUCTIONS: Final[Mapping[str, Callable[[npt.NDArray[Any]], Any]]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "median": np.median,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda tensor: np.abs(tensor).sum(),
    "l2": lambda tensor: np.sqrt(np.square(np.abs(tensor)).sum()),
}
"""Norms of the flat tensor; std and variance of the population."""


def check_reduction(reduction: str) -> None:
    """Check the name of a reduction."""
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"there is no reduction {reduction!r}; valid are {', '.join(sorted(_REDUCTIONS))}"
        )


def reduce_tensor(tensor: npt.NDArray[Any], reduction: str, *, absolute: bool) -> Any:
    """Return a reduction over all elements of a tensor."""
    check_reduction(reduction)
    return _REDUCTIONS[reduction](np.abs(tensor) if absolute else tensor)


def reduction_from_statistics(
    statistics: Mapping[str, float], reduction: str, *, absolute: bool
) -> float | None:
    """Return a reduction computed from statistics; None if they do not determine it.

    Statistics cover only finite elements, so a tensor with other elements has no reduction.
    """
    size = statistics.get("size", math.nan)
    if statistics.get("nan") != 0 or statistics.get("inf") != 0 or not size > 0:
        return None
    known = statistics.get
    if absolute:
        reductions = {
            "max": max(abs(known("min", math.nan)), abs(known("max", math.nan))),
            "mean": known("abs_mean", math.nan),
            "sum": known("l1", math.nan),
            "l1": known("l1", math.nan),
            "l2": known("l2", math.nan),
        }
    else:
        names = ("min", "max", "mean", "std", "l1", "l2")
        reductions = {name: known(name, math.nan) for name in names}
        reductions["variance"] = known("std", math.nan) ** 2
        reductions["sum"] = known("mean", math.nan) * size
    value = reductions.get(reduction, math.nan)
    return None if math.isnan(value) else value
