"""Measures how fast a run learns: movement of weights, and learning rate of boosted trees."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.frameworks import XGBOOST
from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.missing import missing_statistics, missing_tensors
from rule_runtime.facts.saved_tensors import first_scalar
from rule_runtime.facts.tensor_changes import since_previous_step
from rule_runtime.numerics.tensor_change import movement
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["WeightMovement", "median_of_moving", "tree_rate", "weight_movement"]

_RATE_OF_TREES: Final = r"^hyperparameters/(eta|learning_rate)$"
_WARMING_UP: Final = 1.5
"""Multiple of the mean movement from which the learning rate counts as warming up."""


class WeightMovement(NamedTuple):
    """The mean movement of weights per step since the previous saved step.

    Attributes:
        rows: The weights of both steps [R].
        least_ratio: Lower bound of the change, relative to the weight's norm [R].
        moved: Estimated change of an element, relative to the weight's root mean square [R].
        mean: Mean over the run of the median movement.
        is_steady: Whether weights move no faster than on average, unlike in a warm-up. Weights that
            do not move, or move only between some saved steps, are not steady.
    """

    rows: TensorRows
    since: int
    least_ratio: npt.NDArray[np.float64]
    moved: npt.NDArray[np.float64]
    mean: float
    num_steps: int
    is_steady: bool


def weight_movement(step: StepView, memory: Memory) -> WeightMovement:
    """Return the movement of the weights at a training step.

    Memory: `previous`: the previous saved step; `path`: sum of the median movements, number of
    steps, and latest non-zero movement; `is_steady`: see `WeightMovement`.

    Raises:
        Missing: Weights were not saved, or cannot be compared.
    """
    pairs = since_previous_step(step, ("weights",), memory)
    since = pairs.other.mode_step
    ratio, moved = movement(pairs.now, pairs.before)
    if step.mode_step <= since or np.isnan(moved).all():
        unknown = len(pairs.rows) and missing_statistics(pairs.rows, ("l2", "mean"), "weight")
        raise unknown or Missing(f"no weight can be compared with step {since}, the step before")
    ratio, moved = ratio / (step.mode_step - since), moved / (step.mode_step - since)
    length, num_steps, latest = memory.get("path", (0.0, 0, 0.0))
    length += median_of_moving(moved) * (step.mode_step - since)
    num_steps, latest = num_steps + step.mode_step - since, median_of_moving(moved) or latest
    memory["path"], mean = [length, num_steps, latest], length / num_steps
    is_steady = memory["is_steady"] = 0 < latest <= _WARMING_UP * mean
    return WeightMovement(pairs.rows, since, ratio, moved, mean, num_steps, is_steady)


def median_of_moving(moved: npt.NDArray[np.float64]) -> float:
    """Return the median movement of the weights [R] that moved, without frozen ones."""
    moving = moved[moved > 0]
    return float(np.median(moving)) if moving.size else 0.0


def tree_rate(step: StepView) -> tuple[str, float] | None:
    """Return name and value of the learning rate of boosted trees; None for other models.

    Raises:
        Missing: The rate was not saved.
    """
    if framework_of(step) is not XGBOOST:
        return None
    rows = step.tensors(regex=(_RATE_OF_TREES,))
    if not len(rows):
        raise missing_tensors("hyperparameters")
    return first_scalar(rows)
