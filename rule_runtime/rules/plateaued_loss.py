"""PlateauedLoss: a loss that stays where it began, or of outputs unrelated to their targets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.plateau import FEWEST, LEVEL, WINDOW, plateau
from rule_runtime.detectors.trend import is_falling
from rule_runtime.engine.outcome import IssueFound, NotApplicable, Outcome
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.facts.loss_curves import CurveTest, Finding, TrainingLosses, judge_curves
from rule_runtime.facts.selection import evidence, is_training
from rule_runtime.facts.unrelated_outputs import unrelated_outputs
from rule_runtime.facts.warm_up import steps_of_learning
from rule_runtime.numerics.series_memory import SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.numerics.series_memory import NumberSeries, Series
    from rule_runtime.trial.step_view import StepView

__all__ = ["PlateauedLoss"]

_BIN_STEPS: Final = 5
"""Steps whose losses are averaged: so it hardly matters how often losses are saved."""

_EARLY: Final = 1 / 3
"""Share of `num_steps` before which every loss is near its beginning."""

_REMEDY: Final = (
    "Check that labels belong to their inputs and that the loss fits the task. Try another "
    "learning rate. Look for layers that get no gradient."
)


class PlateauedLoss(Rule):
    """Detects training losses that hardly fall, or whose outputs are unrelated to their targets.

    How it decides:
        After `num_steps` steps the loss must have fallen by `min_fall_percent`; before, by a share
        that grows with the steps. Losses with a downward trend, or too noisy to tell, are not
        reported. If outputs and targets are saved, the loss is also reported if the two are
        unrelated by the permutation test. Steps of a warm-up do not count.

    Parameters:
        num_steps: Steps after which the loss must have fallen by `min_fall_percent`.
        min_fall_percent: The fall, in percent of the loss at the beginning.
        patience: How many bins in a row.

    What to try:
        Check that labels belong to their inputs and that the loss fits the task. Try a higher
        learning rate. Look for layers without gradient.
    """

    num_steps: Annotated[int, AtLeast(15), Unit("steps")] = 150
    min_fall_percent: Annotated[
        float, GreaterThan(0), LessThan(100), Unit("% of the loss at the beginning")
    ] = 5.0
    patience: Annotated[int, AtLeast(1), Unit("bins of 5 steps")] = 2

    collections = (CollectionConfig("losses", {"save_interval": "10"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with their beginning, and outputs with targets.

        Args:
            step: What was saved at the step.
            memory: That of `judge_curves`, `steps_of_learning` and `unrelated_outputs`.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not training steps")
        elapsed = steps_of_learning(step, memory) / self.num_steps
        test = CurveTest(
            detect=partial(self._detect, elapsed),
            measure="loss_fall_percent",
            remedy=_REMEDY,
            num_first=LEVEL,
            num_latest=WINDOW,
            num_needed=FEWEST,
            patience=self.patience,
            bin_steps=_BIN_STEPS,
        )
        outcome = judge_curves(step, memory, test)
        if isinstance(outcome, (IssueFound, NotApplicable)) or elapsed < _EARLY:
            return outcome
        unrelated = unrelated_outputs(step, memory)
        history = SeriesMemory(memory["history"], num_first=LEVEL, num_latest=WINDOW)
        for names in unrelated:
            is_known = elapsed >= 1 and names in history.names
            if is_known and not is_falling(history.of(names).latest[-FEWEST:]):
                share, deviation = unrelated[names].share, unrelated[names].deviation
                return self._unrelated(step, names, share, 2 * deviation)
        return outcome

    def _detect(self, elapsed: float, series: NumberSeries) -> Finding | None:
        """Test a loss for a plateau, `elapsed` in units of `num_steps`."""
        needed = min(elapsed, 1.0) * self.min_fall_percent
        found = plateau(series.whole, needed / 100)
        if elapsed < _EARLY or found is None:
            return None
        fall = 100 * found.fall
        moved = f"fell by {fall:.3g} %" if fall >= 0 else f"rose by {-fall:.3g} %"
        return Finding(
            -fall,
            fall,
            needed,
            f"{moved} from {found.start:.4g} to {found.lowest:.4g}, and should have fallen by "
            f"{needed:.3g} % by now",
        )

    def _unrelated(
        self, step: StepView, names: Series, share: float, threshold: float
    ) -> IssueFound:
        losses = step.fact(TrainingLosses)
        return IssueFound(
            evidence(
                step,
                losses.rows,
                losses.at[names],
                measure="correlation",
                value=share,
                threshold=threshold,
                message=f"its outputs are unrelated to their targets: their correlation is "
                f"{share:.2g}, and chance gives up to {threshold:.2g}",
                remedy=_REMEDY,
            )
        )
