"""Whether validation is any better than one answer for all rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from rule_runtime.facts.validation_rule import Training, Validation

__all__ = ["is_guessing", "is_too_early"]

_LATEST: Final = 3
_BEGIN: Final = 90
_FEWEST: Final = 2
_NEAR: Final = 1.1
_TOLD: Final = 130
_GUESSING: Final = 0.99
_STILL: Final = (0.97, 0.98)
_WORSE: Final = 1.03
_FAR_ABOVE: Final = 1.5
_SURELY: Final = 1.6
_PASSES_THERE: Final = 5
_LUCK: Final = 0.01
_LUCK_OF_MANY: Final = 0.03
_MANY: Final = 2 * _LATEST
_LUCK_OF_ROWS: Final = 0.4
_FALLING: Final = 0.005
_BY_HEART: Final = 0.9
_HARDLY: Final = 0.99
_ROUNDS: Final = 20
_LEARNED: Final = 0.03
_NO_BETTER: Final = 0.995
_UNSEEN: Final = 1 / 3


def is_too_early(validation: Validation, training: Training) -> bool:
    """Return whether a model may still begin to learn: that it guesses counts, and is not told.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    is_late = training.num_steps >= _TOLD
    return not validation.of_trees and (not is_late or len(validation.passes) < _LATEST)


def is_guessing(validation: Validation, training: Training, constant: float) -> bool:
    """Return whether validation was never better than one answer for all rows, and stands still.

    Args:
        validation: The loss of validation.
        training: The losses of training.
        constant: What the best such answer gives.
    """
    passes = validation.passes
    if validation.of_trees:
        return _are_guessing(validation, training, constant)
    if training.num_steps < _BEGIN or len(passes) < _FEWEST:
        return False
    if len(passes) < _LATEST and validation.now > _NEAR * constant:
        return False
    if _stays_there(validation, constant):
        return True
    if validation.lowest <= _GUESSING * constant:
        return False
    latest = float(np.median(passes[-_LATEST:]))
    is_as_before = latest > _STILL[0] * validation.first
    has_risen = passes[-1] > _WORSE * validation.lowest
    # What training learns is not seen here, though validation may still come nearer to guessing.
    is_far = training.now + _SURELY * training.noise < constant
    is_by_heart = is_far and training.now < _BY_HEART * constant
    is_by_heart &= bool(passes[-1] > _HARDLY * passes[-2])
    is_still = (is_as_before or has_risen or is_by_heart) and passes[-1] > _STILL[1] * passes[-2]
    # So far above it matters little how passes jump, unless they fall.
    is_far_above = passes[-_LATEST:].min() > _FAR_ABOVE * constant and latest >= validation.first
    is_far_above &= bool(passes[-1] >= passes[-_LATEST:][0])
    return bool(is_still or is_far_above)


def _are_guessing(validation: Validation, training: Training, constant: float) -> bool:
    """Tell the same of boosted trees, the first of which have learned."""
    passes = validation.passes
    if len(passes) < _LATEST or validation.lowest <= _GUESSING * constant:
        return False
    is_learned = training.fall > _LEARNED * training.start
    is_unseen = validation.now - training.now > _UNSEEN * training.fall
    latest = float(np.median(passes[-_LATEST:]))
    stands_still = latest >= _NO_BETTER * constant and passes[-1] >= passes[0]
    return training.num_steps >= _ROUNDS and is_learned and is_unseen and stands_still


def _stays_there(validation: Validation, constant: float) -> bool:
    """Return whether validation, but for some luck, stays where one answer is.

    Of few rows luck is larger: by it a model that knows nothing is better on some of them.
    """
    passes = validation.passes
    rows = validation.num_steps * validation.beside.get(f"rows/{validation.name}", math.inf)
    of_rows = _LUCK_OF_ROWS / math.sqrt(max(rows, 1.0))
    luck = max(_LUCK_OF_MANY if len(passes) >= _MANY else _LUCK, of_rows)
    before, latest = (float(np.median(half)) for half in np.array_split(passes, 2))
    is_there = np.median(passes[-_PASSES_THERE:]) > (1 - luck / 2) * constant
    is_falling = latest <= (1 - max(_FALLING, of_rows / 3)) * before
    is_falling |= validation.now <= validation.lowest < validation.first
    return bool(validation.lowest > (1 - luck) * constant and is_there and not is_falling)
