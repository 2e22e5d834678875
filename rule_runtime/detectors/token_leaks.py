"""Detects language models that see the tokens that they should predict.

Shape legend: B = batch, L = positions.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["COPIED_SHARE", "TIMES_AT_LAST", "are_targets_seen", "is_last_place_worst"]

COPIED_SHARE: Final = 0.05
"""Share of the loss of a uniform guess; models that do not see their targets stay above it."""
_MIN_LENGTH: Final = 8
"""Minimum sequences (for a standard error), positions (more context helps the last), twins."""
TIMES_AT_LAST: Final = 1.5
"""Minimum ratio of the losses without and with the target in the input; about 1 without a leak."""
_STANDARD_ERRORS: Final = 2.8
"""Minimum difference in standard errors of each batch; two in a row make about four."""


def is_last_place_worst(losses: npt.NDArray[np.float64]) -> bool:
    """Return whether the loss [B, L] is significantly higher at the last position than elsewhere.

    If the targets are the next tokens, only the target at the last position is not in the input. A
    causal model has about the same loss there as before. Masked positions are NaN.
    """
    has_both = ~np.isnan(losses[:, -1]) & ~np.isnan(losses[:, :-1]).all(1)
    losses = losses[has_both]
    if min(losses.shape) < _MIN_LENGTH:
        return False
    last, others = losses[:, -1], np.nanmean(losses[:, :-1], 1)
    if last.mean() <= TIMES_AT_LAST * others.mean():
        return False
    apart = last - others
    return bool(apart.mean() * math.sqrt(len(losses)) > _STANDARD_ERRORS * apart.std(ddof=1))


def are_targets_seen(
    losses: npt.NDArray[np.float64], of_twins: npt.NDArray[np.float64], guess: float
) -> bool:
    """Return whether the model knows the next tokens before it gets them.

    Sequences that are equal up to a position have the same scores there, unless the model sees what
    follows. Then the loss of each is lower than by the scores of the others, its twins.

    The last position must be the worst, too, because its target is not in the input. If the script
    masks that target, the scores of twins must be worse than a guess: dropout makes them differ. If
    a batch has few twins, the loss must be lower at each position than at the last one. Losses are
    cross entropies [B, L], NaN without a target or twins; `guess` is that of a uniform guess.
    """
    has_last = not np.isnan(losses[:, -1]).all()
    has_twins = ~np.isnan(of_twins)
    has_twins[:, -1] = False  # the input ends before the last target
    has_many = np.count_nonzero(has_twins) >= _MIN_LENGTH
    if has_last and not is_last_place_worst(losses):
        return False
    if has_many:
        least = TIMES_AT_LAST * losses[has_twins].mean()
        return bool(of_twins[has_twins].mean() > (least if has_last else np.maximum(least, guess)))
    by_place = np.nanmean(losses[:, ~np.isnan(losses).all(0)], 0)
    return has_last and bool(by_place[-1] > TIMES_AT_LAST * by_place[:-1].max())
