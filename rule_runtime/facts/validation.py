"""Losses of validation passes, beside the losses of training.

A validation pass is the EVAL steps between two training steps. XGBoost saves losses of validation
beside those of training in each round, which is a pass of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.baseline import (
    SURELY_MEAN,
    LossTargets,
    constant_loss,
    labels_of_trees,
    targets_of,
)
from rule_runtime.facts.evaluation_phases import is_share_of_errors, loss_side, usual_names
from rule_runtime.facts.missing import missing_validation
from rule_runtime.facts.selection import declared, finite_means, is_training
from rule_runtime.numerics.course import Course
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import MAX_SERIES, NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = [
    "SETTLED_STEPS",
    "StepLosses",
    "Validation",
    "ValidationHistory",
    "has_slow_averages",
    "on_one_scale",
]

SETTLED_STEPS: Final = 500
"""Steps after which moving averages that a step moves by 1 % are right to 0.7 %."""

_NUM_FIRST: Final = 5
"""First losses of training that are kept."""

_NUM_LATEST: Final = 20
"""Latest losses of training that are kept."""

_NUM_NOW: Final = 5
"""Latest losses of training whose median is the loss of now."""

_NUM_PASSES: Final = 8
"""Latest passes that are kept."""

_OTHER_UNITS: Final = 5.0
"""Ratio of the scatter of two sets of targets that are in different units."""

_OTHER_SPREAD: Final = 1.25
"""Ratio of the scatter of two sets of targets that are unlike."""

_OTHER_SIZE: Final = 1.5
"""Ratio of rows from which a sum over rows differs clearly from a mean."""

_NEAR_BASELINE: Final = (0.8, 1.5)
"""A plain cross entropy begins between so many times the loss of a constant predictor."""

_LARGEST: Final = 1e300
"""Losses from here on count as infinite, so that their sums are numbers."""

_OF_SQUARES: Final = ("MSELoss_output", "SmoothL1Loss_output", "HuberLoss_output")
_AVERAGES: Final = ("moving_mean", "moving_variance")
_TRAIN_PREFIX: Final = "train-"
_NO_TRAINING_LOSS: Final = "no loss of the training data was saved"
_EVALS: Final = "give the training data in `evals`, too"


class StepLosses:
    """The finite losses of a step by their usual name and worker.

    Args:
        step: The step.

    Attributes:
        rows: The tensors.
        at_row: Row of each loss.
        of_trees: The loss of training beside each loss of other data that XGBoost measures.
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(collections=("losses",))
        means = finite_means(self.rows)
        names = usual_names(step, self.rows)
        self.at_row: dict[Series, int] = {
            (names[at], self.rows.workers[at]): int(at)
            for at in np.flatnonzero(np.abs(means) < _LARGEST)
            if loss_side(names[at], step.mode)[0] is not None
        }
        self.values = {series: float(means[at]) for series, at in self.at_row.items()}
        of_training = {
            (name, worker): (f"{_TRAIN_PREFIX}{name.partition('-')[2]}", worker)
            for name, worker in self.at_row
            if "-" in name and not name.startswith(_TRAIN_PREFIX) and not is_share_of_errors(name)
        }
        self.of_trees = {s: beside for s, beside in of_training.items() if beside in self.at_row}


class Validation(NamedTuple):
    """A loss of validation at the end of a pass.

    Attributes:
        name: Usual name of the loss.
        worker: The worker.
        course: The losses of the passes, beside those of training.
        num_steps: Training steps since the first one with a loss.
        of_trees: Whether XGBoost measured it.
        targets: Targets of the pass where they were saved at each of its steps.
        of_training: Targets of the latest training step where they were saved.
    """

    name: str
    worker: str
    course: Course
    num_steps: int
    of_trees: bool
    targets: LossTargets | None
    of_training: LossTargets | None

    @property
    def is_of_squares(self) -> bool:
        """Whether the loss is a mean of squares, at least of small errors."""
        return self.name.startswith(_OF_SQUARES)

    @property
    def baseline(self) -> float:
        """Loss of the best constant predictor; 0 if it is unknown.

        Losses of other names, and of yes and no, may have weights: they must begin near it.
        """
        targets = self.targets
        found = constant_loss(self.name, targets) if targets else 0.0
        low, high = (share * found for share in _NEAR_BASELINE)
        is_plain = targets is not None and (targets.is_plain or targets.exact > 0)
        return found if is_plain or low <= self.course.start <= high else 0.0

    @property
    def scale(self) -> float:
        """What there is to learn: the first loss, or that of the constant predictor if smaller.

        The latter says little where the targets of training scatter more or lie elsewhere.
        """
        course, of, baseline = self.course, self.targets, self.baseline
        if self.of_trees:  # which have learned in the first round
            return max(course.start, course.fall) or baseline
        start = max(course.start, course.fall, baseline)
        if of is None or not baseline:
            return start
        if not of.are_numbers:
            return min(start, max(baseline, math.log(2)))
        beside = self.of_training or of
        spread = max(beside.std, math.hypot(of.std, of.mean - beside.mean))
        return start if spread > _OTHER_SPREAD * of.std else min(start, baseline)


class ValidationHistory:
    """Follows losses of validation and training over the steps of a run.

    Args:
        memory: Its JSON state, of at most 32 losses: `training`, `validation`, their series;
            `open`, sums of the pass that goes on; `notes`, lowest loss, loss of training at the
            first pass and latest targets; `steps` of this pass and of the one before (`length`);
            `begin`, `now` and `since` of training.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def add(self, step: StepView) -> list[Validation]:
        """Add the losses of a step; return those of validation whose pass ends with it.

        A pass ends when training goes on, or earlier, with its last step, once it is as long as the
        pass before.

        Args:
            step: The step.

        Raises:
            Missing: The run has no loss of validation so far, or the step no loss at all.
        """
        losses, memory = step.fact(StepLosses), self._memory
        if not losses.at_row:
            self._raise_without_losses(step, is_empty=not len(losses.rows))
            return []
        if step.mode is ModeKeys.EVAL:
            self._add_to_pass(step, losses.values)
            if not 0 < memory.get("length", 0) == memory["steps"]:
                return []
            ended = self._end_pass(losses, {})
            memory["is_judged"] = True
            return ended
        if not is_training(step):
            return []
        memory["now"] = step.mode_step
        memory.setdefault("begin", step.mode_step)
        memory["since"] = min(memory.get("since", 0) + 1, _NUM_NOW)
        if memory.pop("is_judged", False):
            memory.pop("open", None)  # the pass went on after it was judged
        ended = self._end_pass(losses, self._add_training(step, losses))
        if num_steps := memory.pop("steps", 0):
            memory["length"], memory["since"] = num_steps, 1
        if "validation" not in memory:
            self._raise_without_validation(step, losses)
        return ended

    def _raise_without_losses(self, step: StepView, *, is_empty: bool) -> None:
        if not (step.mode is ModeKeys.EVAL and is_empty and "training" in self._memory):
            raise Missing("no finite loss was saved")
        if "validation" not in self._memory:
            raise missing_validation(step)

    def _raise_without_validation(self, step: StepView, losses: StepLosses) -> None:
        if not any(loss_side(name, step.mode)[1] for name, _ in losses.at_row):
            raise Missing(_NO_TRAINING_LOSS, _EVALS)
        raise missing_validation(step)

    def _add_training(self, step: StepView, losses: StepLosses) -> dict[Series, float]:
        """Add losses of training; return the losses of validation that XGBoost saved beside."""
        series = self._training()
        of_training = {s: x for s, x in losses.values.items() if s not in losses.of_trees}
        for name, worker in series.add(of_training):
            targets = targets_of(step, name, worker, of_training[name, worker])
            if targets is not None:
                self._notes(name, worker)["training"] = list(targets)
        self._memory["training"] = series.to_json()
        for name, worker in losses.of_trees:
            labels = labels_of_trees(step, name, worker)
            if labels is not None:
                self._notes(name, worker)["targets"] = list(labels)
        return {s: losses.values[s] for s in losses.of_trees}

    def _add_to_pass(self, step: StepView, losses: Mapping[Series, float]) -> None:
        self._memory["steps"] = self._memory.get("steps", 0) + 1
        opened: dict[str, dict[str, Any]] = self._memory.setdefault("open", {})
        for (name, worker), loss in sorted(losses.items()):
            key = f"{name}\n{worker}"
            if key not in opened and len(opened) >= MAX_SERIES:
                continue
            sums = opened.setdefault(key, {"mean": 0.0, "steps": 0, "targets": None})
            sums["steps"] += 1
            sums["mean"] += loss / sums["steps"] - sums["mean"] / sums["steps"]
            found = targets_of(step, name, worker, loss, with_values=True)
            if found is not None:
                known = sums["targets"]
                sums["targets"] = list(LossTargets(*known).plus(found) if known else found)

    def _end_pass(self, losses: StepLosses, of_trees: Mapping[Series, float]) -> list[Validation]:
        """Add the passes that end to those before; return what is known of each of them."""
        opened = self._memory.pop("open", {})
        passed: dict[Series, float] = dict(of_trees)
        for key, sums in opened.items():
            name, worker = key.split("\n")
            passed[name, worker] = sums["mean"]
            targets = _read(sums["targets"])
            if targets is not None and targets.steps == sums["steps"]:
                self._keep_targets(self._notes(name, worker), targets)
        training = self._training()
        beside = {s: losses.of_trees.get(s, s) for s in passed}
        judged = {s: x for s, x in passed.items() if beside[s] in training.names}
        if not judged:
            return []
        history = self._passes()
        ended = [
            self._validation(s, history.of(s), training.of(beside[s]), of_trees=s in of_trees)
            for s in history.add(judged)
        ]
        self._memory["validation"] = history.to_json()
        return ended

    def _keep_targets(self, notes: dict[str, Any], targets: LossTargets) -> None:
        """Keep the targets of a pass, and what values have shown of those before: they are rare."""
        before = _read(notes.get("targets"))
        if before is not None:
            exact = before.exact if targets.steps == before.steps == 1 else 0.0
            targets = targets._replace(
                exact=targets.exact or exact, is_sum=targets.is_sum or before.is_sum
            )
        notes["targets"] = list(targets)

    def _validation(
        self, series: Series, passes: NumberSeries, training: NumberSeries, *, of_trees: bool
    ) -> Validation:
        notes = self._notes(*series)
        now = float(np.median(training.latest[-_NUM_NOW:]))
        # After a change of task most of the latest losses are those of the task before.
        since = self._memory.get("since", 0) or _NUM_NOW
        before, after = np.array_split(training.latest, 2)
        notes["lowest"] = min(notes.get("lowest", math.inf), float(passes.latest[-1]))
        course = Course(
            passes=passes.latest,
            first=float(passes.first[0]),
            lowest=notes["lowest"],
            training=max(now, float(np.median(training.latest[-since:]))),
            # Boosted trees have learned in the first round.
            training_at_first=0.0 if of_trees else notes.setdefault("at_first", now),
            start=training.start,
            fall=float(np.median(training.first)) - now,
            rise=float(np.median(after) - np.median(before)) if len(after) else 0.0,
            noise=noise(training.latest),
        )
        return Validation(
            *series,
            course=course,
            num_steps=self._memory.get("now", 0) - self._memory.get("begin", 0),
            of_trees=of_trees,
            targets=_read(notes.get("targets")),
            of_training=_read(notes.get("training")),
        )

    def _notes(self, name: str, worker: str) -> dict[str, Any]:
        """Return what is kept of a loss; of further ones than the first 32 nothing is kept."""
        notes: dict[str, dict[str, Any]] = self._memory.setdefault("notes", {})
        key = f"{name}\n{worker}"
        return notes.setdefault(key, {}) if key in notes or len(notes) < MAX_SERIES else {}

    def _training(self) -> SeriesMemory:
        kept = self._memory.get("training", {})
        return SeriesMemory(kept, num_first=_NUM_FIRST, num_latest=_NUM_LATEST)

    def _passes(self) -> SeriesMemory:
        kept = self._memory.get("validation", {})
        return SeriesMemory(kept, num_first=1, num_latest=_NUM_PASSES)


def _read(numbers: list[Any] | None) -> LossTargets | None:
    return None if numbers is None else LossTargets(*numbers)


def on_one_scale(validation: Validation) -> Validation | None:
    """Return a loss of validation on the scale of training; None if they cannot be compared.

    That is where units differ, or where one outlier among the targets makes most of the loss.

    Sums over rows are larger the more rows there are. Whether a loss is one shows in the first
    pass: its ratio to the loss of training is nearer to that of the rows than to 1.

    Args:
        validation: The loss of validation.
    """
    of, beside, course = validation.targets, validation.of_training, validation.course
    if of is not None and of.has_outlier:
        return None
    if of is None or beside is None:
        return validation
    spreads = sorted((of.std, beside.std))
    if of.are_numbers and 0 < _OTHER_UNITS * spreads[0] < spreads[1]:
        return None
    if course.start <= SURELY_MEAN * constant_loss(validation.name, of._replace(is_sum=False)):
        return None if of.is_sum else validation
    times = of.rows / of.steps / beside.rows
    share = course.first / course.training_at_first if course.training_at_first else 0.0
    is_sum = share > 0 and abs(math.log(share)) > abs(math.log(share / times))
    if max(times, 1 / times) < _OTHER_SIZE or not (is_sum or of.is_sum):
        return validation
    return validation._replace(course=course.divided(times))


def has_slow_averages(step: StepView) -> bool:
    """Return whether a model of Keras has batch normalisation, whose moving averages are slow.

    Args:
        step: A step of a worker that declares its weights.
    """
    weights = (name for names in declared(step, "weights").values() for name in names)
    return any(average in name for name in weights for average in _AVERAGES)
