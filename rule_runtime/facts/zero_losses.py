"""Losses that are 0 from the first step on, whatever the model says.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.numerics.series_memory import MAX_SERIES

__all__ = ["zero_losses"]

_STEPS: Final = 10
_NEVER_AGAIN: Final = -1


def zero_losses(
    inputs: LossInputs,
    pairs: Sequence[tuple[str, str]],
    means: npt.NDArray[np.float64],
    memory: Memory,
) -> dict[int, LossMismatch]:
    """Return the losses that were exactly 0 in the first 10 saved steps, as all others were.

    So is the cross entropy of a single score, and the mean over a mask that leaves nothing. A model
    that has learned nothing yet is right in everything by no chance; but what it says must vary.

    Args:
        inputs: The inputs of the losses.
        pairs: Names and workers of the losses [R].
        means: Their values [R].
        memory: `zeros`: how many saved steps each of at most 32 losses was 0 so far; -1 once one
            was not.
    """
    known: dict[str, int] = memory.setdefault("zeros", {})
    are_zero = bool((means == 0).all())
    found = {}
    for at, (name, worker) in sorted(enumerate(pairs), key=lambda pair: pair[1])[:MAX_SERIES]:
        key = f"{worker}/{name}"
        before = known.get(key, 0 if len(known) < MAX_SERIES else _NEVER_AGAIN)
        if key not in known and before == _NEVER_AGAIN:
            continue
        is_so = are_zero and before != _NEVER_AGAIN
        known[key] = min(before + 1, _STEPS) if is_so else _NEVER_AGAIN
        outputs = inputs.of(name, worker, 0)
        if known[key] >= _STEPS and outputs is not None and outputs.std > 0:
            message = f"is exactly 0 in the first {_STEPS} saved steps, whatever the model says"
            found[at] = LossMismatch("zero", 0.0, 0.0, message)
    return found
