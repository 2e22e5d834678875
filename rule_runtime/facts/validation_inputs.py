"""Compares the scale of the model's inputs in validation with that in training."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from rule_runtime.engine.findings import issue
from rule_runtime.engine.outcome import NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.engine.selection import is_training
from rule_runtime.facts.losses import Input, Losses, described
from rule_runtime.facts.saved_tensors import LARGEST
from rule_runtime.numerics.label_tally import MIN_ELEMENTS
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["add_inputs", "compared_with_training"]

_TEXT: Final = (
    "in validation its mean is {0.mean:.3g} and its standard deviation {0.std:.3g}, in training "
    "{1.mean:.3g} and {1.std:.3g}: validation inputs are scaled in another way"
)
_AS_IN_TRAINING: Final = "Prepare validation inputs by the code and the numbers of training."
_TOO_FEW: Final = "too few steps or rows with inputs to compare training and validation"
_MIN_STEPS: Final = 5
"""Minimum training steps, to know how much batches differ."""
_FACTOR: Final = 3.0
"""Ratio of standard deviations that augmentation, padding and drift do not reach."""
_OTHER_DATA: Final = 10.0
"""The same if targets differ, too, or are unknown: validation may be sorted, or of a later time."""
_SPREAD: Final = 3.0
"""Standard deviations of the mean of batches: chance exceeds them once in 400 times."""
_ALIKE: Final = 0.5
"""Distance of mean targets in standard deviations, twice the error of `MIN_ELEMENTS` targets."""
_ALIKE_FACTOR: Final = 2.0
"""Ratio of the standard deviations of targets up to which they are alike."""
_PIXELS: Final = 64
"""Elements of a row that share their bounds, as pixels do; columns of tables do not."""
_OTHER_SPAN: Final = 1.25
"""Ratio between ranges of pixels that are not equal up to rounding or interpolation."""
_SAME_SHAPE: Final = 0.15
"""Difference of mean and standard deviation, in shares of the range, of alike images."""


_Measured = tuple[str, float, float]
"""Name of a statistic, its value in validation, and the limit that it exceeds."""


class _Moments(NamedTuple):
    """Number, mean and sum of squared deviations of numbers, as in Chan's formula."""

    num: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def plus(self, num: float, mean: float, std: float = 0.0) -> _Moments:
        total, delta = self.num + num, mean - self.mean
        squares = self.squares + num * std * std + delta * delta * self.num * num / total
        return _Moments(total, self.mean + delta * num / total, squares)

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.num) if self.num else 0.0


class _Side(NamedTuple):
    """One input in all saved steps of training, or of validation.

    It has moments of the elements, and of the means and the logarithms of the standard deviations
    of steps. The bounds are the extremes if these are equal in all steps; otherwise empty.
    """

    rows: float = 0.0
    elements: _Moments = _Moments()
    means: _Moments = _Moments()
    logarithms: _Moments = _Moments()
    bounds: tuple[float, ...] = ()

    @classmethod
    def of(cls, stored: list[Any] | None) -> _Side:
        """Return what JSON stores."""
        if stored is None:
            return cls()
        elements, means, logarithms = (_Moments(*each) for each in stored[1:4])
        return cls(stored[0], elements, means, logarithms, tuple(stored[4]))

    def to_json(self) -> list[Any]:
        """Return it as JSON."""
        return [self.rows, *map(list, self[1:])]

    def plus(self, one: Input) -> _Side:
        """Return it with one more step."""
        bounds = (one.low, one.high)
        logarithms = self.logarithms
        return _Side(
            self.rows + (one.shape or (1,))[0],
            self.elements.plus(one.size, one.mean, one.std),
            self.means.plus(1, one.mean),
            logarithms.plus(1, math.log(one.std)) if one.std > 0 else logarithms,
            bounds if not self.means.num or self.bounds == bounds else (),
        )


def add_inputs(step: StepView, rows: TensorRows, memory: Memory) -> None:
    """Add model inputs [R] and the targets of a step.

    Memory: `training` and `validation`: `inputs`, statistics of at most 32 inputs; `targets`, of at
    most 32 losses.
    """
    side = memory.setdefault("training" if is_training(step) else "validation", {})
    inputs, targets = side.setdefault("inputs", {}), side.setdefault("targets", {})
    for (name, worker), one in described(rows).items():
        key = f"{worker}/{name}"
        if _is_usable(one) and (key in inputs or len(inputs) < MAX_SERIES):
            inputs[key] = _Side.of(inputs.get(key)).plus(one).to_json()
    for loss in step.fact(Losses).losses:
        known = loss.key in targets or len(targets) < MAX_SERIES
        if loss.targets is not None and _is_usable(loss.targets) and known:
            of, before = loss.targets, _Moments(*targets.get(loss.key, ()))
            targets[loss.key] = list(before.plus(of.size, of.mean, of.std))


def compared_with_training(step: StepView, rows: TensorRows, memory: Memory) -> Outcome:
    """Return a finding on an input [R] of a validation step with another scale than in training.

    Memory: that of `add_inputs`.
    """
    training, validation = memory.get("training", {}), memory["validation"]
    are_alike = _are_alike(training.get("targets", {}), validation["targets"])
    is_compared = False
    for name, worker in rows.pairs:
        key = f"{worker}/{name}"
        own, other = (_Side.of(side.get("inputs", {}).get(key)) for side in (training, validation))
        if (
            own.means.num >= _MIN_STEPS
            and min(own.rows, other.rows) >= MIN_ELEMENTS
            and own.elements.std > 0
            and (are_alike or other.means.num > 1)  # not only a try with made-up inputs
        ):
            is_compared = True
            measured = _compared(own, other, are_alike=are_alike)
            if measured is not None:
                text = _TEXT.format(other.elements, own.elements)
                return issue(step, (name, worker), measured, text, _AS_IN_TRAINING)
    return Passed() if is_compared else NotApplicable(_TOO_FEW)


def _is_usable(one: Input) -> bool:
    numbers = (one.size, one.low, one.high, one.mean, one.std)
    return all(abs(number) < LARGEST for number in numbers) and one.size > 0


def _are_alike(training: dict[str, Any], validation: dict[str, Any]) -> bool:
    """Return whether the targets of all losses are known and alike in both."""
    pairs = [
        (_Moments(*training[key]), _Moments(*validation[key]))
        for key in validation
        if key in training
    ]
    return bool(pairs) and all(
        abs(own.mean - other.mean) <= _ALIKE * own.std
        and own.std <= _ALIKE_FACTOR * other.std
        and other.std <= _ALIKE_FACTOR * own.std
        for own, other in pairs
    )


def _compared(own: _Side, other: _Side, *, are_alike: bool) -> _Measured | None:
    """Return how the scale in validation, `other`, differs from that in training, `own`."""
    factor = _FACTOR if are_alike else _OTHER_DATA
    noise = _SPREAD * math.sqrt((1 + own.rows / other.rows) / own.means.num)
    largest = factor * math.exp(min(noise * own.logarithms.std, math.log(LARGEST)))
    std, usual = other.elements.std, math.exp(own.logarithms.mean)
    if std > largest * own.elements.std:
        return "std", std, largest * own.elements.std
    if std < min(own.elements.std, usual) / largest:
        return "std", std, min(own.elements.std, usual) / largest
    shift, limit = other.elements.mean - own.elements.mean, factor * own.elements.std
    limit += noise * own.means.std
    if abs(shift) > limit:
        at = own.elements.mean + math.copysign(limit, shift)
        return "mean", other.elements.mean, at
    return _of_pixels(own, other) if are_alike else None


def _of_pixels(own: _Side, other: _Side) -> _Measured | None:
    """Return that the same images have another range, such as 0 to 1 and -1 to 1."""
    sides = (own, other)
    if not all(side.bounds and side.elements.num >= _PIXELS * side.rows for side in sides):
        return None
    (low, high), (other_low, other_high) = own.bounds, other.bounds
    spans = high - low, other_high - other_low
    if min(spans) <= 0:
        return None
    places = [
        ((side.elements.mean - side.bounds[0]) / span, side.elements.std / span)
        for side, span in zip(sides, spans, strict=True)
    ]
    is_same_shape = all(abs(a - b) <= _SAME_SHAPE for a, b in zip(*places, strict=True))
    if not is_same_shape or max(spans) <= _OTHER_SPAN * min(spans):
        return None
    if abs(other_high - high) > abs(other_low - low):
        return "max", other_high, high
    return "min", other_low, low
