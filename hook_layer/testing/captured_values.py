"""Reference implementation of reductions and statistics, with numpy in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture.reductions import Reduction
from hook_layer.format.reductions import reduction_tensor_name

__all__ = ["expected_reductions", "expected_statistics"]

_Array = NDArray[Any]

_NUMPY: Final[Mapping[str, Callable[[_Array], Any]]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "median": np.median,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda values: np.sum(np.abs(values)),
    "l2": lambda values: np.sqrt(np.sum(values**2)),
}


def expected_reductions(
    name: str, value: _Array, reductions: Iterable[Reduction], *, spread_ddof: int
) -> dict[str, float]:
    """Return the reductions of a value under their stored names.

    Args:
        name: Name of the tensor.
        value: Its value.
        reductions: Which ones.
        spread_ddof: Delta degrees of freedom of std and variance.
    """
    values = value.astype(np.float64).ravel()
    found = {}
    for reduction, absolute in reductions:
        number = float(_NUMPY[reduction](np.abs(values) if absolute else values))
        variance_factor = values.size / (values.size - spread_ddof)
        if reduction == "variance":
            number *= variance_factor
        elif reduction == "std":
            number *= variance_factor**0.5
        found[reduction_tensor_name(name, reduction, absolute=absolute)] = number
    return found


def expected_statistics(value: _Array) -> dict[str, float]:
    """Return the statistics of a value by column, without those that need elements if empty."""
    values = value.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    counts = {
        "size": float(values.size),
        "nan": float(np.isnan(values).sum()),
        "inf": float(np.isinf(values).sum()),
    }
    if not finite.size:
        return counts
    of_finite = {column: _NUMPY[column] for column in ("min", "max", "mean", "std", "l1", "l2")}
    return {
        **counts,
        **{column: float(function(finite)) for column, function in of_finite.items()},
        "abs_mean": float(np.abs(finite).mean()),
    }
