"""How far weights moved since the saved step before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import Missing, NotEvaluated
from rule_runtime.facts.missing import missing_drift
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["WeightMovement", "median_of_moving", "weight_movement"]


class WeightMovement(NamedTuple):
    """The movement of at most 64 weights in a step, on average since the saved step before.

    Attributes:
        rows: The weights of the step.
        since: The saved step before.
        names: Tensor and worker of each weight [R].
        least_ratio: The change is at least this, in parts of the weight's norm [R].
        moved: Estimated change of an element, in parts of the weight's root mean square [R].
    """

    rows: TensorRows
    since: int
    names: list[tuple[str, str]]
    least_ratio: npt.NDArray[np.float64]
    moved: npt.NDArray[np.float64]

    def row(self, at: int) -> int:
        """Return the row of a weight among those of the step.

        Args:
            at: Its position in `names`.
        """
        pairs = zip(self.rows.names, self.rows.workers, strict=True)
        return list(pairs).index(self.names[at])


def weight_movement(step: StepView, memory: Memory) -> WeightMovement | NotEvaluated:
    """Return the movement of the weights, or why it is not known.

    Args:
        step: A step of training.
        memory: `drift`: statistics of the weights at the saved step before.

    Raises:
        Missing: No weight was saved.
    """
    rows = step.tensors(collections=("weights",))
    if not len(rows):
        raise Missing("no tensor of the collection weights was saved")
    drift = WeightDrift(memory.get("drift", {}))
    columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
    since = drift.step
    pairs = list(zip(rows.names, rows.workers, strict=True))
    ratio, moved, names = drift.advance(step.mode_step, pairs, columns)
    memory["drift"] = drift.to_json()
    if since is None or not names:
        return NotEvaluated(str(missing_drift(rows, since, step.mode_step)))
    return WeightMovement(rows, since, names, ratio, moved)


def median_of_moving(moved: npt.NDArray[np.float64]) -> float:
    """Return the median movement of the weights that moved; 0 if none did.

    Frozen weights do not count.

    Args:
        moved: Movements [R].
    """
    moving = moved[moved > 0]
    return float(np.median(moving)) if moving.size else 0.0
