"""Targets that are so large that a model's outputs, which begin below 1, do not get there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LargeTargets", "targets_out_of_reach"]

_MUCH_LARGER: Final = 10.0
_BEGINNING: Final = 50


class LargeTargets(NamedTuple):
    """Targets that are too large.

    Attributes:
        at: Row of their loss.
        targets: Their root mean square.
        outputs: That of the outputs.
        threshold: What the targets must not exceed.
    """

    at: int
    targets: float
    outputs: float
    threshold: float


def targets_out_of_reach(
    step: StepView, losses: TensorRows, streaks: dict[str, int], *, largest: float, patience: int
) -> LargeTargets | None:
    """Return targets of a loss of numbers that have been too large for long.

    Args:
        step: A step of training.
        losses: Its losses.
        streaks: At how many saved steps in a row those of each of at most 32 losses were; updated.
        largest: Root mean square that inputs may have.
        patience: Saved steps in a row.
    """
    inputs = step.fact(LossInputs)
    found = []
    pairs = enumerate(zip(losses.names, losses.workers, strict=True))
    for at, (name, worker) in sorted(pairs, key=lambda pair: pair[1]):
        outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
        key = f"{worker}/{name}"
        if outputs is None or targets is None or not inputs.kind(name, worker).is_of_numbers:
            continue
        if step.mode_step < _BEGINNING or (key not in streaks and len(streaks) >= MAX_SERIES):
            continue
        sizes = math.sqrt(targets.mean_square), math.sqrt(outputs.mean_square)
        threshold = _MUCH_LARGER * max(largest, sizes[1])
        streaks[key] = min(streaks.get(key, 0) + 1, patience) if sizes[0] > threshold else 0
        if streaks[key] >= patience:
            found.append(LargeTargets(at, *sizes, threshold))
    return found[0] if found else None
