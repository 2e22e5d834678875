"""Decides from the losses of training and validation what does not carry over to validation."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from rule_runtime.numerics.course import Course

__all__ = ["gap_percent", "has_gap", "has_learned", "has_turned", "is_learned_by_heart"]

_NUM_NOISE: Final = 4.0
"""Noise of the training loss by which a gap is larger than chance."""

_LEARNED: Final = 0.03
"""Share of the first loss by which a loss has fallen that has learned something."""

_ERROR_OF_MEDIANS: Final = 1.6
"""Twice the standard error of the difference of two medians of 5, in units of the noise."""

_NUM_PASSES: Final = 4
"""Passes after which validation should be better than at the first one."""

_BETTER: Final = 0.02
"""Share of the first pass by which a later one is clearly better."""

_ABOVE_BEST: Final = 0.005
"""Share of the best pass by which the latest are above it."""

_UNLEARNED: Final = 0.9
"""Share of the first training loss above which a model has learned next to nothing."""

_UNSEEN: Final = 1 / 3
"""Share of what training learned that is missing in validation if it is learned by heart."""

_RISING: Final = 3
"""Passes that rise one after the other."""

_TURNED: Final = 0.1
"""Share of the scale by which validation is above its best once it has turned."""

_NO_RISE: Final = 1.25
"""Rise of training in units of its noise that may be chance: medians of 10 against 10."""


def gap_percent(course: Course, scale: float, ratio: float, *, by_roots: bool) -> float:
    """Return how far validation is above training, in percent of a scale.

    Args:
        course: The losses.
        scale: What there is to learn, as a loss.
        ratio: Ratio of the roots of squares from which these are compared.
        by_roots: Whether losses are squares: their roots, typical errors, show a gap earlier.
    """
    now, training = course.now, course.training
    percent = 100 * (now - training) / scale
    if by_roots and 0 <= training * ratio**2 < now:
        apart = math.sqrt(now) - math.sqrt(training)
        percent = max(percent, 100 * apart / math.sqrt(scale))
    return percent


def has_gap(course: Course, ratio: float) -> bool:
    """Return whether validation is far above training, and was not so from the beginning.

    A gap of the first pass, when nothing was learned yet, must have grown, or doubled in
    proportion.

    Args:
        course: The losses.
        ratio: Largest ratio of the two losses that is no gap.
    """
    now, training = course.now, course.training
    if now - training <= _NUM_NOISE * course.noise or now <= ratio * training:
        return False
    at_first = course.training_at_first
    if at_first <= 0 or at_first < _UNLEARNED * course.start:
        return True
    is_as_large = now - training <= course.first - at_first
    return not is_as_large or now * at_first > 2 * course.first * training


def has_turned(course: Course, scale: float) -> bool:
    """Return whether validation rises, far above its best, while training does not.

    Args:
        course: The losses.
        scale: What the rise is measured by.
    """
    latest = course.passes[-_RISING:]
    is_rising = len(latest) == _RISING and bool((np.diff(latest) > 0).all())
    is_far = latest[-1] - course.lowest > _TURNED * scale
    return bool(is_rising and is_far and course.rise <= _NO_RISE * course.noise)


def has_learned(start: float, fall: float, noise: float) -> bool:
    """Return whether a loss of training has fallen by more than chance.

    Args:
        start: The loss at the beginning.
        fall: How far it has fallen.
        noise: How much it scatters.
    """
    return fall > max(_LEARNED * abs(start), _ERROR_OF_MEDIANS * noise)


def is_learned_by_heart(course: Course) -> bool:
    """Return whether training learns while validation is never better than at the first pass.

    Args:
        course: The losses.
    """
    now = float(np.median(course.passes[-_RISING:]))
    is_above = now >= course.first and now > (1 + _ABOVE_BEST) * course.lowest
    if len(course.passes) < _NUM_PASSES or not is_above or course.start <= 0:
        return False
    # What was learned before the first pass is in all of them.
    least = max((1 - _BETTER) * course.first, _UNLEARNED * course.start)
    is_unseen = course.now - course.training > _UNSEEN * course.fall
    is_learned = has_learned(course.start, course.fall, course.noise)
    return course.lowest > least and is_unseen and is_learned
