"""Reads counts of optimizer steps from the PyTorch hook's collection `optimizer_steps`."""

from __future__ import annotations

import numpy as np

from rule_runtime.trial.step_view import StepView

__all__ = ["largest_count"]


def largest_count(step: StepView, name: str) -> float | None:
    """Return the maximum over all workers of a count such as `skipped`; None if not saved."""
    counts = step.tensors(regex=(f"^optimizer_steps/{name}$",)).column("mean")
    return None if np.isnan(counts).all() else float(np.nanmax(counts))
