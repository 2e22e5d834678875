"""Detects whether all ranks of a step got the same inputs."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["same_on_all_ranks"]

_INPUTS: Final = (r"^[A-Z][A-Za-z0-9]*_input_[0-9]+$", r"^inputs(_[0-9]+)?$")
"""Inputs of whole models, and the targets of losses."""
_STATISTICS: Final = ("size", "min", "max", "mean", "std")


def same_on_all_ranks(step: StepView) -> str | None:
    """Return the name of an input if all ranks got the same, "" if not, None if it is unknown.

    Ranks with different weights work on one batch, as in tensor parallelism. Inputs are the same if
    all their statistics are equal.
    """
    losses = step.tensors(collections=("losses",)).names
    outputs = {f"{name.rpartition('_output_')[0]}_input_0" for name in losses}
    inputs = step.tensors(regex=_INPUTS)
    inputs = inputs.select([name not in outputs for name in inputs.names])
    workers = frozenset(inputs.workers)
    weights = step.tensors(collections=("weights",))
    are_replicas = frozenset(weights.workers) == workers and not _differing(weights, workers)
    pairs = zip(inputs.names, inputs.column("std").tolist(), strict=True)
    judged = sorted({name for name, std in pairs if std > 0})
    if len(workers) < 2 or not are_replicas or not judged:  # noqa: PLR2004 - a single rank
        return None
    return "" if _differing(inputs, workers) else judged[0]


def _differing(rows: TensorRows, workers: frozenset[str]) -> set[str]:
    """Return the tensors that some worker lacks, or that have other statistics on it."""
    table = np.stack([rows.column(name) for name in _STATISTICS], axis=1).tolist()
    seen: dict[str, dict[str, tuple[float, ...]]] = defaultdict(dict)
    for name, worker, numbers in zip(rows.names, rows.workers, table, strict=True):
        seen[name][worker] = tuple(numbers)
    return {name for name, of in seen.items() if of.keys() != workers or len(set(of.values())) > 1}
