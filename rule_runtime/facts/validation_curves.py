"""How losses of validation go, pass by pass, beside those of training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rule_runtime.facts.validation_rule import Training, Validation

__all__ = ["gap_percent", "has_turned", "is_learned_by_heart", "was_there_before"]

_NOTHING_YET: Final = 0.9
_TWICE: Final = 2.0
_LEARNED: Final = 0.03
_SURELY: Final = 1.6
_HARDLY: Final = 0.9
_NO_BETTER: Final = 0.98
_NO_BETTER_OF_TREES: Final = 0.998
_RISEN: Final = 1.005
_UNSEEN: Final = 1 / 3
_NUM_PASSES: Final = 4
_MANY_PASSES: Final = 8
_MORE_PAIRS: Final = 12
_SURELY_RISEN: Final = 1.05
_PERHAPS: Final = 0.8
_LATEST: Final = 3
_ROUNDS: Final = 40
_LEARNED_OF_TREES: Final = 0.003
_RISEN_OF_TREES: Final = 1.002
_TURNED: Final = 0.1
_NO_RISE: Final = 1.25
_TURNED_OF_TREES: Final = 0.25


def gap_percent(validation: Validation, training: Training, scale: float, ratio: float) -> float:
    """Return how far validation lies above training, in percent of the loss at the beginning.

    Of squares it is that of their roots, if this is more: a gap of 4 % of the squares is one of up
    to 20 % of the errors.

    Args:
        validation: The loss of validation.
        training: The losses of training.
        scale: The loss at the beginning.
        ratio: How many times as large errors of validation must be for roots to be compared.
    """
    gap = 100 * (validation.now - training.now) / scale
    is_of_squares = f"squares/{validation.name}" in validation.beside
    if is_of_squares and 0 <= training.now * ratio**2 < validation.now:
        apart = math.sqrt(validation.now) - math.sqrt(training.now)
        gap = max(gap, 100 * apart / math.sqrt(scale))
    return gap


def was_there_before(validation: Validation, training: Training) -> bool:
    """Return whether a gap was as large before anything was learned: the two sets differ in kind.

    Nor may validation have fallen by so much less that it is twice as far above in proportion. Of
    boosted trees nothing is known: the first loss is that of a round which has learned.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    beside = validation.beside_first
    if validation.of_trees or beside <= 0 or beside < _NOTHING_YET * training.start:
        return False
    is_as_large = validation.now - training.now <= validation.first - beside
    return is_as_large and validation.now * beside <= _TWICE * validation.first * training.now


def is_learned_by_heart(validation: Validation, training: Training) -> bool:
    """Return whether training falls while validation stays where training began.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    passes = validation.passes
    # The standard error of the difference of two medians of 5 is 0.8 times the noise.
    least = max(_LEARNED * training.start, _SURELY * training.noise)
    risen = _RISEN
    if validation.of_trees and training.num_steps >= _ROUNDS:
        least, risen = _LEARNED_OF_TREES * training.start, _RISEN_OF_TREES
    latest = float(np.median(passes[-_LATEST:]))
    if _rises_on(passes) and latest > _SURELY_RISEN * validation.first:
        least = max(_LEARNED * training.start, _PERHAPS * training.noise)
    if len(passes) < _NUM_PASSES or training.fall <= least or training.start <= 0:
        return False
    lowest = _NO_BETTER_OF_TREES if validation.of_trees else _NO_BETTER
    return bool(
        latest >= validation.first
        and latest > risen * validation.lowest
        and validation.lowest > lowest * validation.first
        and validation.lowest > _HARDLY * training.start
        and validation.now - training.now > _UNSEEN * training.fall
    )


def has_turned(validation: Validation, training: Training, scale: float) -> bool:
    """Return whether validation rises, far above its best, and training does not.

    Args:
        validation: The loss of validation.
        training: The losses of training.
        scale: By which the gap is measured.
    """
    rise = validation.now - validation.lowest
    if validation.of_trees:
        is_late = training.num_steps >= _ROUNDS
        has_fallen = training.fall > _LEARNED_OF_TREES * abs(training.start)
        return is_late and has_fallen and rise > _TURNED_OF_TREES * training.fall
    passes = validation.passes[-_LATEST:]
    return bool(
        len(passes) == _LATEST
        and (np.diff(passes) > 0).all()
        and rise > _TURNED * scale
        and validation.now > training.now - training.noise
        and training.rise <= _NO_RISE * training.noise
    )


def _rises_on(passes: npt.NDArray[np.float64]) -> bool:
    """Return whether 8 passes rise: in 20 of the 28 pairs the later one is larger (Kendall's S)."""
    later, earlier = np.tril_indices(len(passes), -1)
    score = np.sign(passes[later] - passes[earlier]).sum()
    return bool(len(passes) >= _MANY_PASSES and score >= _MORE_PAIRS)
