"""Tensors that a step saved, or that the collections of its hook declare.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LARGEST", "declared", "finite_means", "first_scalar", "largest_count", "num_not_finite"]

LARGEST: Final = 1e100
"""Numbers from this size on are skipped: their sums and squares could overflow."""


def num_not_finite(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the number of NaN and infinite elements of each row [R]; 0 if unknown."""
    return np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))


def finite_means(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the mean of each row [R], the value of a scalar such as a loss.

    It is NaN if the row has a non-finite element.
    """
    return np.where(num_not_finite(rows) > 0, np.nan, rows.column("mean"))


def first_scalar(rows: TensorRows) -> tuple[str, float]:
    """Return the name and the mean of the first row."""
    return rows.names[0], float(finite_means(rows)[0])


def largest_count(step: StepView, name: str) -> float | None:
    """Return the largest count of optimizer steps, such as `skipped`; None if not saved."""
    counts = step.tensors(regex=(f"^optimizer_steps/{name}$",)).column("mean")
    return None if np.isnan(counts).all() else float(np.nanmax(counts))


def declared(step: StepView, collection: str) -> dict[str, frozenset[str]]:
    """Return the tensors of a collection by worker, even if they were not saved at this step.

    Workers without a collections file, or without a tensor in this collection, are omitted.
    """
    found = {}
    for worker in step.workers:
        file = step.collections_file(worker)
        entry = None if file is None else file.collections.get(collection)
        if entry is not None and entry.tensor_names:
            found[worker] = frozenset(entry.tensor_names)
    return found
