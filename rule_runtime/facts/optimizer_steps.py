"""Counts of optimizer steps by the hook for PyTorch: the collection `optimizer_steps`."""

from __future__ import annotations

from typing import Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.trial.step_view import StepView

__all__ = ["OPTIMIZER_STEPS", "largest_count"]

OPTIMIZER_STEPS: Final = CollectionConfig("optimizer_steps", {"save_interval": "10"})
"""What the hook saves for a rule that needs counts."""


def largest_count(step: StepView, name: str) -> float | None:
    """Return a count such as `skipped`, the largest one of all workers; None if none was saved."""
    counts = step.tensors(regex=(f"^optimizer_steps/{name}$",)).column("mean")
    return None if np.isnan(counts).all() else float(np.nanmax(counts))
