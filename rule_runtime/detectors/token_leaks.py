"""Detects language models that see the tokens that they should predict.

Shape legend: B = batch, L = positions.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "COPIED_SHARE",
    "TIMES_AT_LAST",
    "are_copied",
    "are_next",
    "are_targets_seen",
    "is_last_place_worst",
]

_MIN_TOKENS: Final = 32
"""Minimum positions with a target; fewer may be equal by chance."""
COPIED_SHARE: Final = 0.05
"""Share of the loss of a uniform guess; models that do not see their targets stay above it."""
_MIN_LENGTH: Final = 8
"""Minimum sequences (for a standard error), positions (more context helps the last), twins."""
TIMES_AT_LAST: Final = 1.5
"""Minimum ratio of the losses without and with the target in the input; about 1 without a leak."""
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


def are_targets_seen(losses: npt.NDArray[np.float64], of_twins: npt.NDArray[np.float64]) -> bool:
    """Return whether the last position is worst and the model knows the next tokens before it.

    The last token may be the hardest of a fixed layout. But sequences that are equal up to a
    position have the same scores there, unless the model sees what follows. Then the loss of each
    is lower than by the scores of the others, its twins. If a batch has few twins, the loss must be
    lower at each position than at the last one. Both are cross entropies [B, L], NaN without twins.
    """
    if not is_last_place_worst(losses):
        return False
    has_twins = ~np.isnan(of_twins)
    has_twins[:, -1] = False  # the input ends before the last target
    if np.count_nonzero(has_twins) >= _MIN_LENGTH:
        return bool(of_twins[has_twins].mean() > TIMES_AT_LAST * losses[has_twins].mean())
    by_place = losses.mean(0)
    return bool(by_place[-1] > TIMES_AT_LAST * by_place[:-1].max())
