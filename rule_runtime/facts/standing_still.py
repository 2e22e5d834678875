"""What parameters that stand still did before, and what the others do meanwhile.

Shape legend: R = rows, one for each (parameter, worker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "Before",
    "are_at_bounds",
    "are_steady",
    "changed_before",
    "has_exploded",
    "keeps_moving",
]

_SETTLED: Final = 1e-4
_ROUNDING: Final = 1e-4
_LARGEST: Final = float(np.finfo(np.float32).max)
_EXPLODED: Final = 1e6
_MOVING: Final = 1e-3
_FEW: Final = 3
_GROWN: Final = 1.5


class Before(NamedTuple):
    """What parameters did before.

    Attributes:
        has_changed: Whether each ever changed [R].
        has_settled: Whether it did, and its gradient is but rounding by now [R].
    """

    has_changed: npt.NDArray[np.bool_]
    has_settled: npt.NDArray[np.bool_]


def changed_before(
    memory: Memory,
    keys: npt.NDArray[np.uint32],
    sizes: npt.NDArray[np.float64],
    changes: npt.NDArray[np.bool_],
) -> Before:
    """Return what each parameter did before, this step included.

    Args:
        memory: Its `largest`: the bits of the largest gradients, and for how many steps it has been
            known that a parameter changes.
        keys: Keys of the parameters [R].
        sizes: Their mean absolute gradients [R].
        changes: Whether they changed since the step before [R].
    """
    rows = RowMemory(memory.get("largest", ""))
    known = rows.known(keys)
    before = np.array([known.get(int(key), (0, 0)) for key in keys], "<u4").reshape(-1, 2)
    finite = np.where(sizes < _LARGEST, sizes, 0).astype("<f4")
    largest = np.maximum(before[:, 0].copy().view("<f4"), finite)
    has_changed = changes | (before[:, 1] > 0)
    rows.update(keys, largest.view("<u4"), has_changed)
    memory["largest"] = rows.to_json()
    return Before(has_changed, has_changed & (sizes < _SETTLED * largest))


def are_at_bounds(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which tensors have but two values, as weights that a script clips and that go farther.

    Args:
        rows: The tensors [R].
    """
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    # Nothing between two numbers scatters by more than these two.
    return np.isclose(std * std, (mean - low) * (high - mean), rtol=_ROUNDING, atol=0.0)


def has_exploded(memory: Memory, sizes: npt.NDArray[np.float64]) -> bool:
    """Return whether the largest gradient is more than a million times that of the first step.

    Args:
        memory: Its `first`: the largest gradient of the first step.
        sizes: Mean absolute gradients of the parameters [R].
    """
    largest = float(sizes.max(initial=0.0))
    if largest < _LARGEST:
        memory.setdefault("first", largest)
    return bool(largest > _EXPLODED * memory.get("first", largest))


def keeps_moving(step: StepView, memory: Memory) -> bool:
    """Return whether the weights that move do so by a thousandth of what they once did, or more.

    Biases are left out: from zero the first steps of one are as large as itself.

    Args:
        step: What was saved at the step.
        memory: `drift`, statistics of at most 64 weights; `fastest`, how far the median one of
            those that moved moved in a step, at most.

    Returns:
        True also where it is not known, as of weights of one element.
    """
    rows = step.tensors(collections=("weights",))
    drift = WeightDrift(memory.get("drift", {}))
    columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
    names = list(zip(rows.names, rows.workers, strict=True))
    _, moved, _ = drift.advance(step.mode_step, names, columns)
    memory["drift"] = drift.to_json()
    if not moved.size:
        return True
    usual = float(np.median(moved[moved > 0])) if (moved > 0).any() else 0.0
    memory["fastest"] = max(memory.get("fastest", 0.0), usual)
    return bool(usual >= _MOVING * memory["fastest"] and usual > 0)


def are_steady(memory: Memory, sizes: npt.NDArray[np.float64], *, begins: bool) -> bool:
    """Return whether gradients of weights that stand still do not grow: none is added to another.

    Where gradients are accumulated, what is saved of them is their sum so far. It grows with the
    steps, or with their root if it is but noise.

    Args:
        memory: Its `gradients`: how large the median one was at the first 3 steps and at the
            latest 3.
        sizes: Mean absolute gradients of the parameters [R].
        begins: Whether weights moved until this step.
    """
    first, latest = ([], []) if begins else memory.get("gradients", ([], []))
    known = sizes[sizes > 0]
    if known.size:
        size = min(float(np.median(known)), _LARGEST)
        first, latest = [*first, size][:_FEW], [*latest, size][-_FEW:]
    memory["gradients"] = [first, latest]
    if len(latest) < _FEW:
        return False
    return bool(np.median(latest) < _GROWN * min(first))
