"""Steps in which a model could learn: updates since its weights last began to move faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.facts.weight_movement import (
    WeightMovement,
    median_of_moving,
    weight_movement,
)
from rule_runtime.numerics.robust import trend

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
    Kendall, above all that was before. Where gradients are accumulated, weights move between some
    saved steps only: then each movement counts as one step. Without saved weights all steps since
    the first one count.

    Args:
        step: A step of training.
        memory: `begin`: where the warm-up ended; `movements`: the latest 20; `largest`: the largest
            median of 3; `moves`: pairs of saved steps with a movement, and all pairs; `drift`: that
            of `weight_movement`.
    """
    begin: int = memory.setdefault("begin", step.mode_step)
    known = len(step.tensors(collections=("weights",))) and weight_movement(step, memory)
    if isinstance(known, WeightMovement):
        movement = median_of_moving(known.moved)
        moved, pairs = memory.get("moves", (0, 0))
        memory["moves"] = [moved + (movement > 0), pairs + 1]
        if movement > 0 and _rises(movement, memory):
            begin = memory["begin"] = step.mode_step
            memory["moves"] = [0, 0]
    moved, pairs = memory.get("moves", (0, 0))
    return int(step.mode_step - begin if moved == pairs else moved)


def _rises(movement: float, memory: Memory) -> bool:
    """Add a movement; return whether the latest ones rise, above all that were before."""
    memory["movements"] = [*memory.get("movements", []), movement][-_NUM_MOVEMENTS:]
    movements = np.array(memory["movements"])
    first, last = np.median(movements[:_NUM_LEVEL]), float(np.median(movements[-_NUM_LEVEL:]))
    is_largest = last >= memory.get("largest", 0.0)
    memory["largest"] = max(memory.get("largest", 0.0), last)
    return bool(is_largest and last > _GROWN * first and trend(movements) >= _RISING)
