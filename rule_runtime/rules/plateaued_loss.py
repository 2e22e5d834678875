"""PlateauedLoss: detects losses that hardly fall, or whose outputs are unrelated to targets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final

from rule_runtime.detectors.curves import FEWEST, LEVEL, WINDOW, is_falling, plateau
from rule_runtime.engine.curve_rule import CurveRule, Finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotEnough, Outcome
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Unit
from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.facts.training_losses import training_points
from rule_runtime.facts.weight_movement import weight_movement
from rule_runtime.numerics.association import Association
from rule_runtime.numerics.series_memory import MAX_SERIES, NumberSeries, Series
from rule_runtime.trial.step_view import StepView

__all__ = ["PlateauedLoss"]

_WITHOUT_TARGETS: Final = (LossKind.UNKNOWN, LossKind.LOOKS_LIKE_CLASSES)
"""Kinds of losses with arbitrary inputs: embeddings, advantages, logarithms."""
_NUM_STEPS: Final = 5
"""Number of latest steps with values that are combined."""
_FEWEST_STEPS: Final = 3
"""Minimum number of steps with values; fewer may be unusual batches."""
_CHANCE: Final = 2.0
"""Threshold of the correlation in standard deviations; 5 % of unrelated outputs exceed it."""
_MAX_DEVIATION: Final = 0.067
"""Maximum standard deviation by chance: a correlation of 0.2 would be three of these."""


class PlateauedLoss(CurveRule):
    """Detects training losses that hardly fall, or whose outputs are unrelated to their targets.

    How it decides:
        After `num_steps` steps the rule reports:
        * a loss that never fell by `min_fall_percent`;
        * a loss whose saved outputs are unrelated to their targets.

        It ignores losses with a downward trend, noisy losses and warm-ups.

    Parameters:
        patience: Number of consecutive losses, each at least 5 steps apart.
        num_steps: Steps after which the loss must have fallen by `min_fall_percent`.
        min_fall_percent: The fall, in percent of the first loss.

    What to try:
        Check that labels belong to their inputs and that the loss fits the task. Try another
        learning rate. Look for layers without gradient.
    """

    patience: Annotated[int, AtLeast(1), Unit("losses")] = 2
    num_steps: Annotated[int, AtLeast(15), Unit("steps")] = 150
    min_fall_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 5.0

    measure = "loss_fall_percent"
    num_first = LEVEL
    points = staticmethod(training_points)
    spacing = 5  # so it hardly depends on how often losses are saved

    _window = (FEWEST, WINDOW)

    def needs(self) -> Needs:
        """Return the length of a curve, and `num_steps` steps."""
        return replace(super().needs(), steps=self.num_steps)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with their start, and outputs with targets.

        Memory: The state of `CurveRule`, `_learning_steps` and `_unrelated_outputs`.
        """
        num_steps, unrelated = _learning_steps(step, memory), _unrelated_outputs(step, memory)
        outcome = super().check(step, memory)
        if num_steps < self.num_steps:
            raise NotEnough(self.num_steps, "step", num_steps, "a warm-up does not count")
        if isinstance(outcome, IssueFound):
            return outcome
        history = self._history(memory)
        found = {
            names: Finding(
                abs(each.correlation),
                2 * each.deviation,
                f"its outputs are unrelated to their targets: their correlation is "
                f"{each.correlation:.2g}, and chance gives up to {2 * each.deviation:.2g}",
                measure="correlation",
            )
            for names, each in unrelated.items()
            if names in history.names and not is_falling(history.of(names).latest[-FEWEST:])
        }
        return self._worst(step, step.fact(training_points), found) if found else outcome

    def _detect(self, series: NumberSeries) -> Finding | None:
        """Test a loss for a plateau."""
        found = plateau(series.whole, self.min_fall_percent / 100, series.lowest)
        if found is None:
            return None
        start, lowest = found
        fall = 100 * (1 - lowest / start)
        moved = f"fell by {fall:.3g} %" if fall >= 0 else f"rose by {-fall:.3g} %"
        text = f"{moved} from {start:.4g} to {lowest:.4g}, and should have fallen by "
        return Finding(fall, self.min_fall_percent, f"{text}{self.min_fall_percent:g} % by now")


def _unrelated_outputs(step: StepView, memory: Memory) -> dict[Series, Association]:
    """Add the values of a step; return the losses whose outputs are unrelated to their targets.

    The permutation test compares outputs with their targets and with those of other rows. The loss
    must be the only one of its worker, and compare the two by its name: a good generator makes a
    discriminator's outputs unrelated to their targets.

    Memory: `associations` of at most 32 losses at the latest 5 steps with values.
    """
    facts = step.fact(Losses)
    known: dict[str, list[list[float]]] = memory.setdefault("associations", {})
    found = {}
    losses = step.fact(training_points).at
    workers = [worker for _, worker in losses]
    for name, worker in losses:
        key = f"{worker}/{name}"
        is_unknown = facts.find(name, worker).kind in _WITHOUT_TARGETS
        if is_unknown or workers.count(worker) > 1:
            continue
        values = facts.values(facts.find(name, worker))
        association = None if values is None else Association.of(*values)
        if association is None or (key not in known and len(known) >= MAX_SERIES):
            continue
        known[key] = [*known.get(key, []), list(association)][-_NUM_STEPS:]
        total = Association(*(sum(column) for column in zip(*known[key], strict=True)))
        would_show = total.deviation <= _MAX_DEVIATION and len(known[key]) >= _FEWEST_STEPS
        if would_show and abs(total.correlation) <= _CHANCE * total.deviation:
            found[name, worker] = total
    return found


def _learning_steps(step: StepView, memory: Memory) -> int:
    """Return the number of training steps so far; 0 while weights are not steady.

    Memory: `begin`: the first step; and the state of `weight_movement`.
    """
    begin: int = memory.setdefault("begin", step.mode_step)
    with suppress(Missing):
        weight_movement(step, memory)
    return step.mode_step - begin if memory.get("is_steady", True) else 0
