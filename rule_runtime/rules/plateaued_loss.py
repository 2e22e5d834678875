"""PlateauedLoss: detects losses that hardly fall, or whose outputs are unrelated to targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from rule_runtime.detectors.curves import FEWEST, LEVEL, WINDOW, is_falling, plateau
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEnough, Outcome
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Unit
from rule_runtime.facts.loss_curves import CurveRule, Finding, training_points, unrelated_outputs
from rule_runtime.facts.selection import is_training
from rule_runtime.facts.weight_movement import learning_steps
from rule_runtime.numerics.series_memory import NumberSeries
from rule_runtime.trial.step_view import StepView

__all__ = ["PlateauedLoss"]


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
    spacing = 5  # so it hardly depends on how often losses are saved

    @property
    def _window(self) -> tuple[int, int]:
        return FEWEST, WINDOW

    def needs(self) -> Needs:
        """Return the length of a curve, and `num_steps` steps."""
        return replace(super().needs(), steps=self.num_steps)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with their start, and outputs with targets.

        Memory: The state of `CurveRule`, `learning_steps` and `unrelated_outputs`.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not training steps")
        num_steps, unrelated = learning_steps(step, memory), unrelated_outputs(step, memory)
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
        return Finding(
            fall,
            self.min_fall_percent,
            f"{moved} from {start:.4g} to {lowest:.4g}, and should have fallen by "
            f"{self.min_fall_percent:g} % by now",
        )
