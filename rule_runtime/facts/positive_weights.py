"""The weight that a loss of yes or no gives to yes, and whether that fits how rare it is.

`pos_weight` is no input that the hook sees, but the loss tells it: with outputs x and targets t the
mean is w mean(t softplus(-x)) + mean((1 - t) softplus(x)), which values determine, and these are
saved seldom.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["wrong_weight_of"]

_OF_YES: Final = re.compile(r"^BCEWithLogitsLoss_output")
_SAME: Final = 1e-2
_EQUAL: Final = 1e-4
_LEAST: Final = 1e-3
_TIMES: Final = 10.0
_FEWEST: Final = 8
_MOST_ELEMENTS: Final = 1 << 22


def wrong_weight_of(
    step: StepView, name: str, worker: str, value: float, memory: Memory
) -> LossMismatch | None:
    """Return what is wrong if yes counts ten times more, or less, than its rarity explains.

    As it is where a weight is left from another task, or is that of the other class. What is usual
    lies between 1 and how many times rarer yes is. The weight must be the same in two steps with
    values, of at least 8 targets of each kind together, and a factor of the whole loss must not
    explain it as well; of weights for each column, or row, nothing is known.

    Args:
        step: The step.
        name: Name of the loss, `X_output_0`.
        worker: The worker.
        value: The loss.
        memory: `weights`: of each of at most 32 losses the latest weight, by what the whole loss
            would be multiplied instead, and how many targets of no and yes there were.

    Returns:
        None if nothing is, or no values were saved.
    """
    values = outputs_and_targets(step, name, worker) if _OF_YES.match(name) else None
    if values is None or not math.isfinite(value):
        return None
    known: dict[str, list[float]] = memory.setdefault("weights", {})
    key = f"{worker}/{name}"
    if key not in known and len(known) >= MAX_SERIES:
        return None
    factors = _factors(*values, value)
    if factors is None:
        known.pop(key, None)
        return None
    *before, no, yes = known.get(key, (math.nan, math.nan, 0.0, 0.0))
    ones = float(np.count_nonzero(values[1]))
    no, yes = no + values[1].size - ones, yes + ones
    known[key] = [*factors, no, yes]
    is_weight = math.isclose(factors[0], before[0], rel_tol=_SAME)
    is_factor = math.isclose(factors[1], before[1], rel_tol=_EQUAL)
    if not is_weight or is_factor or min(no, yes) < _FEWEST:
        return None
    weight, rarer = factors[0], no / yes
    least, most = min(1.0, rarer) / _TIMES, max(1.0, rarer) * _TIMES
    if least <= weight <= most:
        return None
    message = f"gives yes {weight:.3g} times the weight of no, by its value, and yes is "
    message += f"{rarer:.3g} times rarer"
    return LossMismatch("weight", weight, most if weight > most else least, message)


def _factors(outputs: Any, targets: Any, loss: float) -> tuple[float, float] | None:
    """Return by what yes, or else everything, is multiplied; None if the loss is no such mean."""
    if outputs.shape != targets.shape or not 0 < targets.size <= _MOST_ELEMENTS:
        return None
    x, t = (of.astype(np.float64).reshape(-1) for of in (outputs, targets))
    if not (np.isfinite(x).all() and np.isin(t, (0, 1)).all()):
        return None
    of_yes = float((t * np.logaddexp(0, -x)).mean())
    of_no = float(((1 - t) * np.logaddexp(0, x)).mean())
    # Beside a much larger part rounding decides.
    if not of_yes > _LEAST * of_no or not loss > of_no:
        return None
    return (loss - of_no) / of_yes, loss / (of_no + of_yes)
