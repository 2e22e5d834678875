"""How many steps a training had since its weights last began to move clearly more: its warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.robust import trend
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["steps_since_warm_up"]

_GROWN: Final = 1.2
_USUAL: Final = 3
_NUM_LATEST: Final = 20
_SURELY: Final = 3.0
_RISEN: Final = 1.4
_NEAR: Final = 0.85
_NEVER: Final = 200


def steps_since_warm_up(step: StepView, memory: Memory) -> int | None:
    """Return the steps since weights began to move more, or the updates if these are rare.

    Under a linear warm-up the movement grows by a fifth in a fifth of the steps so far. A single
    movement scatters by as much, with Adam too. So the median of the latest 3 is what counts: it
    grew if it is larger by a fifth than the largest one so far, or as good as that and at the end
    of a rise by 40 % within the latest 20, which by chance is one in a thousand.

    While no weight has ever moved there is nothing to wait for after 200 steps: hardly anybody
    accumulates the gradients of as many.

    Args:
        step: What was saved at the step.
        memory: `drift`, statistics of at most 64 weights; `movements`, the latest 20; `updates`:
            the step since which it did not grow, the largest median so far, and how many pairs of
            saved steps there were since, with a movement and without.

    Returns:
        None before the second step with weights.
    """
    moved = _movement(step, memory)
    if moved is None:
        return None
    before, size = moved
    if size > 0:
        memory["movements"] = [*memory.get("movements", []), size][-_NUM_LATEST:]
    movements = np.array(memory.get("movements", [0.0]))
    usual = float(np.median(movements[-_USUAL:]))
    since, largest, num_moved, num_still = memory.get("updates", (before, usual, 0, 0))
    is_larger = usual > _GROWN * largest or (usual > _NEAR * largest and _rises(movements))
    if size > 0 and is_larger:
        since, largest, num_moved = before, max(usual, largest), 0
    num_moved, num_still = num_moved + (size > 0), num_still + (size == 0)
    memory["updates"] = [since, largest, num_moved, num_still]
    never_moved = not memory.get("movements") and step.mode_step - since >= _NEVER
    return int(num_moved if num_still and not never_moved else step.mode_step - since)


def _movement(step: StepView, memory: Memory) -> tuple[int, float] | None:
    """Return the step before, and how far the median weight moved since; None if not known."""
    rows = step.tensors(collections=("weights",))
    if not len(rows):
        return None
    drift = WeightDrift(memory.get("drift", {}))
    columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
    before = drift.step
    _, moved, _ = drift.advance(
        step.mode_step, list(zip(rows.names, rows.workers, strict=True)), columns
    )
    memory["drift"] = drift.to_json()
    if before is None or not moved.size:
        return None
    return before, float(np.median(moved[moved > 0])) if (moved > 0).any() else 0.0


def _rises(movements: npt.NDArray[np.float64]) -> bool:
    """Return whether movements are surely larger than those before them.

    Args:
        movements: The latest ones [at most 20].
    """
    first, last = float(np.median(movements[:_USUAL])), float(np.median(movements[-_USUAL:]))
    return last > _RISEN * first and trend(movements) >= _SURELY
