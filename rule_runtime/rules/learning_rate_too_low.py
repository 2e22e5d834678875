"""LearningRateTooLow: weights that hardly move while there is all to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.facts.evaluation_phases import usual_names
from rule_runtime.facts.loss_rule import training_losses
from rule_runtime.facts.missing_reasons import why_no_drift
from rule_runtime.facts.selection import evidence, finite_means, is_training
from rule_runtime.facts.slow_trees import OF_TREES, slow_trees
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import MAX_SERIES, SeriesMemory
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS, WeightDrift

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LearningRateTooLow"]

_NUM_FIRST: Final = 5
_NUM_LATEST: Final = 20
_NUM_NOW: Final = 5
_NOISY: Final = 1.5
_FAR_TOO_LITTLE: Final = 10
_LONG: Final = 3
_WARMING_UP: Final = 1.5
_STEADY: Final = 0.8
_NUM_PASSES: Final = 8
_PASSES_APART: Final = 25
_PASSES_STEPS: Final = 150
_PASSES_RATIO: Final = 5.0
_PASSES_FALL: Final = 0.5
_MOST_STEADY: Final = 1.25
_LEARNED: Final = 0.1
_REMEDY: Final = (
    "Raise the learning rate tenfold, unless a schedule has lowered it on purpose; then look at "
    "what the loss did before. Look whether gradients vanish on their way to the first layers."
)


class LearningRateTooLow(Rule):
    """Finds updates so small that nothing is learned.

    How it decides:
        How far a single element of a weight moves is estimated from the change of minimum, maximum,
        mean and standard deviation between two saved training steps, in units of the weight's root
        mean square, divided by the number of steps. It fires if the median over the weights has
        been smaller than `min_update_ratio` for `num_steps` steps, and each loss has fallen by less
        than `max_fall_percent` since the beginning (median of the latest 5 against the smaller of
        the first one and the median of the first 5, unless it is below a tenth of the largest of
        these; with noise of more than 1.5 times this share nothing can be told, and it is quiet,
        unless the weights have moved by less than a tenth of `min_update_ratio` at every step of 3
        times `num_steps` or more: by 0.15 % in all, with the defaults), and some gradient is not
        zero where gradients are saved. While the movement is still growing, by half over the
        window, it waits: that is a warm-up. Weights that do not move at all while others do are
        left out (DeadOptimizer, MissingGradient). At the end of a schedule the loss has fallen, so
        it is quiet. The exact update ratio needs the values themselves: see WeightUpdateRatio. Of
        more than 64 weights 64 evenly spread by name are followed.

        Validation has little noise, and so it tells more: five times as much movement is too little
        where three passes of validation, the latest, the latest of those 150 steps of training or
        more before it and the one in the middle, fell by less than half of `max_fall_percent`
        together, and as fast at the end as at the beginning (0.8 to 1.25 times), each loss of them.
        Of passes less than 25 steps apart the first counts.

        Boosted trees have no weights. There it fires if each `train-...` loss has fallen by less
        than 0.1 % in 20 rounds or more (2 % where the hyperparameter `eta` was saved and is below
        0.001), and as fast in the second half of them as in the first (at least 0.8 times): where
        there is little to learn, the first trees learn it. Shares of errors, `train-error`, jump
        with the first tree however small its step is, and are not judged.

    Parameters:
        min_update_ratio: Movement in a step, in parts of the weight's root mean square.
        num_steps: Steps for which it must have been smaller.
        max_fall_percent: Fall of the loss from which on the training counts as learning.

    What to try:
        Ten times the learning rate; look at the schedule.
    """

    min_update_ratio: Annotated[float, GreaterThan(0), Unit("of the rms per step")] = 1e-4
    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 50
    max_fall_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 10.0

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
        CollectionConfig("losses", {"save_interval": "10"}),
        CollectionConfig("hyperparameters", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Measure how far the weights moved, and whether the loss fell.

        Args:
            step: What was saved at the step.
            memory: `drift`: statistics of at most 64 weights; `stands`: whether all of their moves
                were tiny; `losses`: first and latest numbers of at most 32 losses; `since`: where
                the small movement began, and what it was there; `rounds`: see `slow_trees`; `pass`,
                sum and number of the losses of validation since the latest step of training, and
                `passes`, the latest 8 of each, 25 steps apart or more: the step of training behind
                it and the mean.
        """
        if not is_training(step):
            _add_to_pass(step, memory)
            return NotApplicable(f"in mode {step.mode.name} no weight changes")
        _end_pass(step, memory)
        rows = step.tensors(collections=("weights",))
        if not len(rows) and any(name.startswith(OF_TREES) for name in _names_of_losses(step)):
            return slow_trees(step, memory, _REMEDY)
        fallen = self._fallen(step, memory)
        if not len(rows) or not fallen:
            return NotEvaluated("weights and losses are needed, and were not saved together")
        drift = WeightDrift(memory.get("drift", {}))
        columns = np.stack([rows.column(name) for name in DRIFT_COLUMNS], axis=1)
        pairs = list(zip(rows.names, rows.workers, strict=True))
        since = drift.step
        _, moved, names = drift.advance(step.mode_step, pairs, columns)
        memory["drift"] = drift.to_json()
        if not names:
            return NotEvaluated(why_no_drift(rows, since, step.mode_step))
        moving = moved[moved > 0]
        middle = float(np.median(moving)) if moving.size else 0.0
        limit = self.min_update_ratio
        if middle >= limit and self._creeps(memory):
            limit *= _PASSES_RATIO
        is_too_low = self._is_too_low(step, middle, (since, limit), memory)
        stands = self._has_stood(step, middle, memory)
        if not is_too_low or True in fallen or (None in fallen and not stands):
            return Passed()
        slowest = names[min(range(len(names)), key=lambda at: (moved[at] or np.inf, names[at]))]
        message = (
            f"moved least; the median weight moves by {middle:.3g} of its size in a step, less "
            f"than {limit:g}, since step {memory['since'][0]}, and the loss has not fallen"
        )
        return IssueFound(
            evidence(
                step,
                rows,
                pairs.index(slowest),
                measure="median_move_per_step",
                value=middle,
                threshold=limit,
                message=message,
                remedy=_REMEDY,
            )
        )

    def _is_too_low(
        self, step: StepView, moved: float, beside: tuple[int | None, float], memory: Memory
    ) -> bool:
        """Tell whether weights moved too little for long enough, and do not begin to move."""
        since, limit = beside
        if not 0 < moved < limit or not _has_gradients(step):
            memory.pop("since", None)
            return False
        begin, first = memory.setdefault("since", [since, moved])
        if moved > _WARMING_UP * first:
            memory["since"] = [since, moved]
            return False
        return bool(step.mode_step - begin >= self.num_steps)

    def _has_stood(self, step: StepView, moved: float, memory: Memory) -> bool:
        """Tell whether weights have moved far too little at every step, and there were many."""
        is_still = moved < self.min_update_ratio / _FAR_TOO_LITTLE
        memory["stands"] = memory.get("stands", True) and is_still
        return bool(memory["stands"] and step.mode_step >= _LONG * self.num_steps)

    def _creeps(self, memory: Memory) -> bool:
        """Tell whether validation falls slowly and steadily."""
        passes = list(memory.get("passes", {}).values())
        return bool(passes) and all(self._is_creeping(latest) for latest in passes)

    def _is_creeping(self, passes: list[list[float]]) -> bool:
        last, end = passes[-1]
        long_ago = [each for each in passes if last - each[0] >= _PASSES_STEPS]
        if not long_ago:
            return False
        begin, first = long_ago[-1]
        between = [each for each in passes if begin < each[0] < last]
        if not between:
            return False
        step, middle = min(between, key=lambda each: abs(2 * each[0] - begin - last))
        before, since = (first - middle) / (step - begin), (middle - end) / (last - step)
        is_steady = before > 0 and _STEADY * before <= since <= _MOST_STEADY * before
        return bool(is_steady and first - end < _PASSES_FALL * self._needed(first))

    def _fallen(self, step: StepView, memory: Memory) -> list[bool | None]:
        """Tell of each loss whether it has fallen since the beginning; None if noise hides it."""
        rows = step.tensors(collections=("losses",))
        means = finite_means(rows)
        history = SeriesMemory(
            memory.get("losses", {}), num_first=_NUM_FIRST, num_latest=_NUM_LATEST
        )
        kept = history.add(
            {names: float(means[at]) for names, at in training_losses(step, rows, means).items()}
        )
        memory["losses"] = history.to_json()
        fallen: list[bool | None] = []
        for numbers in map(history.of, kept):
            start = min(float(numbers.first[0]), float(np.median(numbers.first)))
            fall = start - float(np.median(numbers.latest[-_NUM_NOW:]))
            is_unclear = noise(numbers.latest) > _NOISY * self._needed(start)
            # What had been learned before the first few were saved falls no more.
            is_learned = 0 <= start - fall < _LEARNED * float(numbers.first.max())
            has_fallen = is_learned or fall > self._needed(start)
            fallen.append(True if has_fallen else None if is_unclear else False)
        return fallen

    def _needed(self, start: float) -> float:
        return abs(start) * self.max_fall_percent / 100


def _add_to_pass(step: StepView, memory: Memory) -> None:
    """Add the losses of a step of validation."""
    if step.mode is not ModeKeys.EVAL:
        return
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    sums: dict[str, list[float]] = memory.setdefault("pass", {})
    for at in sorted(range(len(rows)), key=lambda at: (rows.names[at], rows.workers[at])):
        key = f"{rows.workers[at]}/{rows.names[at]}"
        if np.isfinite(means[at]) and (key in sums or len(sums) < MAX_SERIES):
            total, count = sums.get(key, (0.0, 0))
            sums[key] = [total + float(means[at]), count + 1]


def _end_pass(step: StepView, memory: Memory) -> None:
    """Add the pass of validation that ended to the latest ones."""
    passes: dict[str, list[list[float]]] = memory.setdefault("passes", {})
    for key, (total, count) in memory.pop("pass", {}).items():
        before = passes.get(key, [])
        if before and step.mode_step - before[-1][0] < _PASSES_APART:
            continue
        if key in passes or len(passes) < MAX_SERIES:
            passes[key] = [*before, [step.mode_step, total / count]][-_NUM_PASSES:]


def _names_of_losses(step: StepView) -> tuple[str, ...]:
    return tuple(usual_names(step, step.tensors(collections=("losses",))))


def _has_gradients(step: StepView) -> bool:
    """Tell whether a gradient is not zero; True as well if none is saved."""
    rows = step.tensors(collections=("gradients",))
    return not len(rows) or bool((np.nan_to_num(rows.column("l2")) > 0).any())
