"""WorseThanGuessing: a model that, long trained, answers worse than one constant answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.loss_advice import loss_inputs_advice
from rule_runtime.facts.loss_inputs import LOSS_INPUTS, LossInputs, size_of_error
from rule_runtime.facts.loss_rule import training_losses
from rule_runtime.facts.selection import evidence, finite_means, is_training
from rule_runtime.facts.validation_answers import PREDICTIONS, agreement_of
from rule_runtime.facts.worse_trees import worse_trees
from rule_runtime.numerics.agreement import Agreement
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import MAX_SERIES, NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["WorseThanGuessing"]

_WINDOW: Final = 10
_LONGER: Final = 40
_FAR: Final = 3.0
_STILL: Final = 0.9
_NUM_FIRST: Final = 3
_SURELY_MEAN: Final = 3.0
_FASTER: Final = 1.3
_SURELY: Final = 1.6
_NUM_ANSWERED: Final = 20
_DEVIATIONS: Final = -6.0
_BELOW_CHANCE: Final = -0.1
_PARTS: Final = ("losses", "means", "squares")
_NO_INPUTS: Final = "no loss was saved beside inputs that tell what a constant gives"
_REMEDY: Final = (
    "Lower the learning rate or clip gradients if the loss jumps; scale targets to mean 0 and "
    "variance 1; initialise the last layer small; check that the loss fits the targets."
)
_REVERSED: Final = (
    "Check the sign of the loss and what its targets mean: what is alike may be 1 or 0."
)


class _Seen(NamedTuple):
    """What is kept of a loss at one step: its value, and mean and mean square of its targets."""

    loss: float
    mean: float
    square: float


class WorseThanGuessing(Rule):
    """Finds models that answer worse than a constant, long after the beginning.

    How it decides:
        Of each training loss the median of the latest 10 saved ones is compared with what the best
        constant answer gives: ln(number of classes) for a cross entropy, with the classes being a
        dimension of the scores, `..._input_0`; for MSELoss the variance of all targets,
        `..._input_1`, of these steps together; for L1Loss, SmoothL1Loss and HuberLoss its root (or
        half of it, if that is more, for HuberLoss), which is never less than what such a constant
        gives. It fires if, from `num_steps` steps on, the median is more than `max_ratio` times
        that, `patience` saved steps in a row, and has not fallen so far since the beginning that,
        going on like this, it would be below within `num_steps` more; nor does it fall ever faster
        (in the latter half of the 10 by 1.3 times as much as on average, and by more than 1.6 times
        the noise). Targets whose mean is more than 3 standard deviations from 0, as logarithms of
        prices, are far from where outputs begin: there the median must also be more than 0.9 times
        that of the at most 30 saved ones before. A loss of another name is taken for a cross
        entropy if its targets are whole numbers, one for each row of its scores; those of a loss
        that is no module are what the only model returns, and the only `labels`. Losses that are
        sums over the batch, and those of yes and no (whose classes may be weighted), are not
        judged: what is larger than a mean can be, by the sizes of outputs and targets, is a sum;
        nor are targets that do not vary. Of more than 32 losses the first 32 are judged.

        Where `labels` and `predictions` of classes were saved with values, it fires as well if,
        from `num_steps` steps on, the answers of the latest 20 saved steps of training are right
        less often than by chance, by 6 standard deviations of the permutation test and by 10 % of
        what chance leaves (Cohen's kappa of -0.1): chance makes no model wrong on what it is
        trained on, but a loss that takes its targets for their opposite does.

        Of boosted trees the training losses are compared whose labels tell what a constant gives:
        `logloss` of two classes, each 30 % or more, `mlogloss`, and `rmse` and `mae` of labels of
        more than 50 values, unless a quantile or expectile other than that of 0.5 is asked for. It
        fires from 20 rounds on, if the median of the latest 10 saved ones is that large at 3 of
        them in a row, and what it fell by since the first round does not lead below in 300 more.
        The loss of other data, of which the labels are then, must be as large, and never 5 % below
        what a constant gives unless that of training rises. Of classes only probabilities count.

    Parameters:
        num_steps: Steps after which a model must be better than a constant.
        max_ratio: Times the loss of the best constant answer.
        patience: Saved steps in a row.

    What to try:
        A lower learning rate; targets of mean 0 and variance 1; a smaller initialisation.
    """

    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 100
    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of a constant answer")] = 1.5
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with those of a constant answer.

        Args:
            step: What was saved at the step.
            memory: That of `worse_trees`; `answered`, the first step with answers, and `answers`,
                how right the latest 20 are; `begin`, the first step with a loss; of at most 32
                losses `sums`, whether it is a sum, the first 3 and latest 10 of `losses`, and of
                the `means` and mean `squares` of targets, the latest 40 `longer`.
        """
        if not is_training(step):
            return NotApplicable(f"a step of mode {step.mode.name} says nothing of the training")
        found = self._of_answers(step, memory)
        of_trees = worse_trees(step, memory, self.max_ratio)
        return found or of_trees or self._of_losses(step, memory)

    def _of_answers(self, step: StepView, memory: Memory) -> IssueFound | None:
        """Add the answers of a step; return what is found if they are worse than chance."""
        found = agreement_of(step)
        if found is None:
            return None
        begin = memory.setdefault("answered", step.mode_step)
        memory["answers"] = [*memory.get("answers", []), list(found)][-_NUM_ANSWERED:]
        total = Agreement.total(memory["answers"])
        is_early = step.mode_step - begin < self.num_steps
        is_early |= len(memory["answers"]) < _NUM_ANSWERED
        if is_early or total.z > _DEVIATIONS or total.share > _BELOW_CHANCE:
            return None
        return IssueFound(
            evidence(
                step,
                step.tensors(regex=(f"^{PREDICTIONS}$",)),
                0,
                measure="share_beyond_chance",
                value=total.share,
                threshold=_BELOW_CHANCE,
                message=f"those of the latest {_NUM_ANSWERED} saved steps are right in "
                f"{total.right:g} of {total.rows:g} rows; by chance {total.by_chance:.0f} would be",
                remedy=_REVERSED,
            )
        )

    def _of_losses(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with those of a constant answer."""
        rows = step.tensors(collections=("losses",))
        means = finite_means(rows)
        inputs = step.fact(LossInputs)
        seen: dict[Series, _Seen] = {}
        at_row = training_losses(step, rows, means)
        sums = memory.setdefault("sums", {})
        for names, at in sorted(at_row.items()):
            loss, key = float(means[at]), "\n".join(names)
            if not sums.get(key) and (key in sums or len(sums) < MAX_SERIES):
                is_sum = _is_sum(inputs, names, loss, is_first=key not in sums)
                if is_sum is not None:
                    sums[key] = is_sum
            kept = None if sums.get(key, True) else _seen(inputs, names, loss)
            if kept is not None:
                seen[names] = kept
        if not seen:
            return NotEvaluated(f"{_NO_INPUTS}: {loss_inputs_advice(step)}")
        memory.setdefault("begin", step.mode_step)
        num_steps = step.mode_step - memory["begin"]
        found = self._judge_all(inputs, seen, num_steps, memory)
        if not found:
            return Passed()
        names = max(found, key=lambda names: (found[names][0] / found[names][1], names))
        loss, limit = found[names]
        return IssueFound(
            evidence(
                step,
                rows,
                at_row[names],
                measure="loss",
                value=loss,
                threshold=limit,
                message=f"is {loss:.4g} after {num_steps} steps, more than {self.max_ratio:g} "
                f"times {limit / self.max_ratio:.3g}, which the best constant answer gives",
                remedy=_REMEDY,
            )
        )

    def _judge_all(
        self, inputs: LossInputs, seen: dict[Series, _Seen], num_steps: int, memory: Memory
    ) -> dict[Series, tuple[float, float]]:
        """Add what was seen; return the loss and its limit of each that is too large."""
        parts = [
            SeriesMemory(memory.get(part, {}), num_first=_NUM_FIRST, num_latest=_WINDOW)
            for part in _PARTS
        ]
        for number, part in enumerate(parts):
            added = part.add({names: kept[number] for names, kept in seen.items()})
        losses = parts[0]
        longer = SeriesMemory(memory.get("longer", {}), num_first=0, num_latest=_LONGER)
        longer.add({names: seen[names].loss for names in added})
        found = {}
        for names in added:
            series = losses.of(names)
            moments = [float(part.of(names).latest.mean()) for part in parts[1:]]
            limit = self.max_ratio * _constant(inputs, names, *moments)
            now = float(np.median(series.latest))
            is_bad = num_steps >= self.num_steps and series.count >= _WINDOW and now > limit
            is_bad = is_bad and not self._will_fall(series, limit, num_steps)
            is_bad = is_bad and not _is_on_a_long_way(longer.of(names), *moments)
            if losses.streak(names, is_bad=is_bad) >= self.patience and is_bad:
                found[names] = (now, limit)
        memory.update(zip(_PARTS, (part.to_json() for part in parts), strict=True))
        memory["longer"] = longer.to_json()
        return found

    def _will_fall(self, series: NumberSeries, limit: float, num_steps: int) -> bool:
        """Tell whether a loss, falling on as it does, gets below in time, or falls ever faster."""
        start, now = float(np.median(series.first)), float(np.median(series.latest))
        if not start > now > 0 or series.latest.min() <= 0:
            return False
        fall = math.log(start / now)
        if num_steps * math.log(now / limit) <= self.num_steps * fall:
            return True
        # The medians of the halves lie half a window apart, with a standard error of 0.8 noises.
        halves = [float(np.median(half)) for half in np.split(series.latest, 2)]
        share = _WINDOW / 2 / max(series.count - 1, 1)
        least = max(_FASTER * fall * share, _SURELY * noise(np.log(series.latest)))
        return math.log(halves[0] / halves[1]) > least


def _is_on_a_long_way(longer: NumberSeries, mean: float, square: float) -> bool:
    """Tell whether a loss falls clearly, of targets far from 0, where outputs begin."""
    before, latest = np.split(longer.latest, [-_WINDOW])
    is_far = mean * mean > _FAR**2 * (square - mean * mean)
    return is_far and len(before) > 0 and bool(np.median(latest) < _STILL * np.median(before))


def _is_sum(inputs: LossInputs, names: Series, loss: float, *, is_first: bool) -> bool | None:
    """Tell whether a loss is a sum over the batch, not a mean; None if that is not known yet.

    Only the first value is compared with that of guessing: a mean may grow by as much later.
    """
    if inputs.is_sum(*names, loss, least=math.inf, most=math.inf):
        return True
    targets = inputs.of(*names, 1)
    if targets is not None and targets.size == 1:
        return False
    guess = inputs.guess(*names)
    if not is_first or math.isnan(guess):
        return None
    if loss <= _SURELY_MEAN * guess:
        return False
    return inputs.is_sum(*names, loss, least=guess / _SURELY_MEAN, most=_SURELY_MEAN * guess)


def _seen(inputs: LossInputs, names: Series, loss: float) -> _Seen | None:
    """Return what is kept of a loss; None if nobody knows what a constant answer gives."""
    kind, targets = inputs.kind(*names), inputs.of(*names, 1)
    if targets is None or not math.isfinite(targets.mean_square):
        return None
    if kind.is_of_numbers:
        return _Seen(loss, targets.mean, targets.mean_square)
    is_known = kind.is_of_classes and inputs.num_classes(*names) is not None
    return _Seen(loss, 0.0, 0.0) if is_known else None


def _constant(inputs: LossInputs, names: Series, mean: float, square: float) -> float:
    """Return the loss of the best constant answer; infinite if targets do not vary."""
    kind = inputs.kind(*names)
    if kind.is_of_classes:
        return math.log(max(inputs.num_classes(*names) or 2, 2))
    variance = square - mean**2
    if variance <= 1e-9 * square:
        return math.inf
    return size_of_error(kind, names[0], variance)
