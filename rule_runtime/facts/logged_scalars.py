"""Numbers that a script logs to other libraries, as a rule remembers them from step to step."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

import numpy as np

from hook_layer.format.known_collections import LOGGED_STEP, SCALAR
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.trial.step_view import StepView

__all__ = ["LOGGED_SCALARS", "tolerated_scalars"]

LOGGED_SCALARS: Final = (f"^{SCALAR}",)


def tolerated_scalars(step: StepView, memory: MutableMapping[str, Any], patience: int) -> set[str]:
    """Return the logged scalars that were never finite, or are not for fewer than `patience` steps.

    A best loss so far begins as infinity, and some metrics have no value in an epoch.

    Memory: `not_finite`: latest consecutive steps without a finite value, by scalar that had one.
    """
    steps = step.tensors(regex=(f"^{LOGGED_STEP}",)).names
    logged = {SCALAR + name.removeprefix(LOGGED_STEP) for name in steps}
    if not logged:
        return set()
    rows = step.tensors(regex=LOGGED_SCALARS)
    counts: dict[str, int] = memory.setdefault("not_finite", {})
    tolerated = set()
    for name, mean in zip(rows.names, finite_means(rows), strict=True):
        if np.isfinite(mean):
            counts[name] = 0
            continue
        if name in counts:
            counts[name] += 1
        if name in logged and counts.get(name, 0) < patience:
            tolerated.add(name)
    return tolerated
