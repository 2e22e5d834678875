"""Detects language models that see the tokens that they should predict.

Shape legend: B = batch, L = positions.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["COPIED_SHARE", "TIMES_AT_LAST", "are_copied", "are_next", "is_last_place_worst"]

_MIN_TOKENS: Final = 32
"""Minimum positions with a target; fewer may be equal by chance."""
COPIED_SHARE: Final = 0.05
"""Share of the loss of a uniform guess; models that do not see their targets stay above it."""
_MIN_LENGTH: Final = 8
"""Minimum sequences (for a standard error) and positions (more context helps the last one)."""
TIMES_AT_LAST: Final = 1.5
"""Minimum ratio of the losses at the last and the earlier positions; about 1 without a leak."""
_STANDARD_ERRORS: Final = 4.0
"""Minimum difference in standard errors."""


def are_next(tokens: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bool:
    """Return whether each target [B, L] except the last is the next token [B, L]."""
    is_constant = not tokens.size or (tokens == tokens.flat[0]).all()
    return not is_constant and np.array_equal(tokens[:, 1:], targets[:, :-1])


def are_copied(tokens: npt.NDArray[Any], targets: npt.NDArray[Any], loss_share: float) -> bool:
    """Return whether a model copies tokens [B, L] at all targets [B, L] that are not negative."""
    wanted = targets[targets >= 0]
    if not loss_share < COPIED_SHARE or len(wanted) < _MIN_TOKENS or (wanted == wanted[0]).all():
        return False
    return np.array_equal(tokens[targets >= 0], wanted)


def is_last_place_worst(losses: npt.NDArray[np.float64]) -> bool:
    """Return whether the loss [B, L] is significantly higher at the last position than elsewhere.

    If the targets are the next tokens, only the target at the last position is not in the input. A
    causal model has about the same loss there as before.
    """
    last, others = losses[:, -1], losses[:, :-1].mean(1)
    if min(losses.shape) < _MIN_LENGTH or last.mean() <= TIMES_AT_LAST * others.mean():
        return False
    apart = last - others
    return bool(apart.mean() * math.sqrt(len(losses)) > _STANDARD_ERRORS * apart.std(ddof=1))
