"""Steps in which a model could learn: updates since its weights last began to move faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.robust import trend
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["steps_of_learning"]

_NUM_MOVEMENTS: Final = 20
"""Movements between saved steps whose trend shows a warm-up."""

_RISING: Final = 3.0
"""Z-score of a trend; by chance one in 700 is as large."""

_GROWN: Final = 1.3
"""Times the first movements; in 20 saved steps of a slower warm-up a model learns all the same."""

_NUM_LEVEL: Final = 3
"""Movements whose median is a level."""


def steps_of_learning(step: StepView, memory: Memory) -> int:
    """Return the training steps since a warm-up of the learning rate, as far as weights show it.

    During a warm-up the movement of weights between saved steps rises, by the test of Mann and
    Kendall. Where gradients are accumulated, weights move between some saved steps only: then each
    movement counts as one step. Without saved weights all steps since the first one count.

    Args:
        step: A step of training.
        memory: `begin`: where the warm-up ended; `movements`: the latest 20; `moves`: pairs of
            saved steps with a movement, and all pairs; `drift`: that of `WeightDrift`.
    """
    begin: int = memory.setdefault("begin", step.mode_step)
    movement = _movement(step, memory)
    if movement is not None:
        moved, pairs = memory.get("moves", (0, 0))
        memory["moves"] = [moved + (movement > 0), pairs + 1]
        if movement > 0:
            memory["movements"] = [*memory.get("movements", []), movement][-_NUM_MOVEMENTS:]
        if _is_rising(np.array(memory.get("movements", ()))):
            begin = memory["begin"] = step.mode_step
            memory["moves"] = [0, 0]
    moved, pairs = memory.get("moves", (0, 0))
    return int(step.mode_step - begin if moved == pairs else moved)


def _movement(step: StepView, memory: Memory) -> float | None:
    """Return how far the median weight moved since the saved step before; None if not known."""
    rows = step.tensors(collections=("weights",))
    if not len(rows):
        return None
    drift = WeightDrift(memory.get("drift", {}))
    columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
    pairs = list(zip(rows.names, rows.workers, strict=True))
    _, moved, names = drift.advance(step.mode_step, pairs, columns)
    memory["drift"] = drift.to_json()
    moving = moved[moved > 0]
    return (float(np.median(moving)) if moving.size else 0.0) if names else None


def _is_rising(movements: npt.NDArray[np.float64]) -> bool:
    if trend(movements) < _RISING:
        return False
    first, last = np.median(movements[:_NUM_LEVEL]), np.median(movements[-_NUM_LEVEL:])
    return bool(last > _GROWN * first)
