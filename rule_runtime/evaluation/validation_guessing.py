"""Whether validation is any better than one answer for all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from rule_runtime.evaluation.validation_rule import Training, Validation

__all__ = ["is_guessing"]

_LATEST: Final = 3
_STEPS: Final = 150
_GUESSING: Final = 0.99
_STILL: Final = (0.97, 0.98)
_WORSE: Final = 1.03
_FAR_ABOVE: Final = 1.5
_SURELY: Final = 1.6
_STEPS_THERE: Final = 130
_PASSES_THERE: Final = 5
_THERE: Final = 0.985
_LUCKY: Final = 0.97
_FALLING: Final = 0.995
_BY_HEART: Final = 0.9
_HARDLY: Final = 0.99
_ROUNDS: Final = 20
_LEARNED: Final = 0.03
_NO_BETTER: Final = 0.995
_UNSEEN: Final = 1 / 3


def is_guessing(validation: Validation, training: Training, constant: float) -> bool:
    """Tell whether validation was never better than one answer for all rows, and stands still.

    Args:
        validation: The loss of validation.
        training: The losses of training.
        constant: What the best such answer gives.
    """
    passes = validation.passes
    if _stays_there(validation, training, constant):
        return True
    if len(passes) < _LATEST or validation.lowest <= _GUESSING * constant:
        return False
    latest = float(np.median(passes[-_LATEST:]))
    if validation.of_trees:
        is_learned = training.fall > _LEARNED * training.start
        is_unseen = validation.now - training.now > _UNSEEN * training.fall
        stands_still = latest >= _NO_BETTER * constant and passes[-1] >= passes[0]
        return training.num_steps >= _ROUNDS and is_learned and is_unseen and stands_still
    is_as_before = latest > _STILL[0] * validation.first
    has_risen = passes[-1] > _WORSE * validation.lowest
    # What training learns is not seen here, though validation may still come nearer to guessing.
    is_far = training.now + _SURELY * training.noise < constant
    is_by_heart = is_far and training.now < _BY_HEART * constant
    is_by_heart &= bool(passes[-1] > _HARDLY * passes[-2])
    is_still = (is_as_before or has_risen or is_by_heart) and passes[-1] > _STILL[1] * passes[-2]
    # So far above it matters little how passes jump, unless they fall.
    is_far_above = passes[-_LATEST:].min() > _FAR_ABOVE * constant and latest >= validation.first
    is_far_above &= bool(passes[-1] >= passes[-_LATEST])
    return bool(training.num_steps >= _STEPS and (is_still or is_far_above))


def _stays_there(validation: Validation, training: Training, constant: float) -> bool:
    """Tell whether validation, but for a pass with some luck, stays where one answer is."""
    passes = validation.passes
    if validation.of_trees or training.num_steps < _STEPS_THERE or len(passes) < 2 * _LATEST:
        return False
    latest, before = np.median(passes[-_LATEST:]), np.median(passes[-2 * _LATEST : -_LATEST])
    is_there = np.median(passes[-_PASSES_THERE:]) > _THERE * constant and latest > _FALLING * before
    return bool(validation.lowest > _LUCKY * constant and is_there)
