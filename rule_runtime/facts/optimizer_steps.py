"""Counts of optimizer steps by the hook for PyTorch: the collection `optimizer_steps`."""

from __future__ import annotations

import numpy as np

from rule_runtime.trial.step_view import StepView

__all__ = ["largest_count"]


def largest_count(step: StepView, name: str) -> float | None:
    """Return a count such as `skipped`, the largest one of all workers; None if none was saved."""
    counts = step.tensors(regex=(f"^optimizer_steps/{name}$",)).column("mean")
    return None if np.isnan(counts).all() else float(np.nanmax(counts))
