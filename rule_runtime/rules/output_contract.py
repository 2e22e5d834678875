"""OutputContract: outputs, targets and losses that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.outcome import Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.losses import Input, Loss, Losses
from rule_runtime.facts.missing import how_to_save_loss_inputs, missing_loss
from rule_runtime.facts.output_contract import CONTRACT, Requirement, is_pooled
from rule_runtime.facts.selection import finding, is_training, saved_every
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView

__all__ = ["OutputContract"]


class OutputContract(Rule):
    """Detects outputs, targets and losses that do not fit together, such as a second softmax.

    How it decides:
        A table says what each loss requires of its outputs and targets: range, shape, sum of a row,
        number of units. The rule compares the statistics of each saved training step with it, also
        of a step in which the loss failed with an error. It reports a broken requirement after
        `patience` steps, or after `range_patience` if chance may break it.

    Parameters:
        patience: Saved steps in a row with a broken requirement.
        range_patience: The same for requirements that chance may break, such as the range of
            outputs.

    What to try:
        Change the two lines of code that the finding names.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1
    range_patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 10

    collections = saved_every(10, "losses", "loss_inputs", "predictions", "labels")

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare outputs and targets of each loss with the table.

        Memory: `losses`: for at most 32 losses, how many times in a row each requirement was
        broken.
        """
        if not is_training(step):
            return NotApplicable(f"losses of mode {step.mode.name} are not evaluated")
        losses = step.fact(Losses)
        listed = [(loss, (losses.rows, loss.row)) for loss in losses.losses] + losses.failed()
        listed += losses.predicted()
        if not listed:
            raise missing_loss(step)
        known = [(*one, pair) for one in listed if (pair := _pair(one[0])) is not None]
        if not known:
            raise Missing("no inputs of losses were saved", how_to_save_loss_inputs(step))
        states = memory.setdefault("losses", {})
        found = []
        for loss, row, pair in known:
            if loss.key in states or len(states) < MAX_SERIES:
                state = states.setdefault(loss.key, {})
                found += [
                    finding(
                        self,
                        step,
                        row,
                        (requirement.measure, value, requirement.limit),
                        requirement.text(*pair, value),
                        remedy=requirement.remedy(loss),
                    )
                    for requirement, value in self._broken(step, loss, pair, state)
                ]
        return found[0] if found else Passed()

    def _broken(
        self, step: StepView, loss: Loss, pair: tuple[Input, Input], state: dict[str, Any]
    ) -> Iterator[tuple[Requirement, float]]:
        """Yield the requirements that were broken long enough, with the values."""
        for number, requirement in enumerate(CONTRACT):
            value = requirement.broken(loss, *pair)
            if value is not None and requirement.ignores_pooled and is_pooled(step, loss):
                value = None
            patience = self.range_patience if requirement.may_be_chance else self.patience
            num_bad = streak(state, is_bad=value is not None, name=str(number))
            if value is not None and num_bad >= patience:
                yield requirement, value


def _pair(loss: Loss) -> tuple[Input, Input] | None:
    """Return outputs and targets, if both shapes were saved."""
    outputs, targets = loss.outputs, loss.targets
    if outputs is None or targets is None or None in (outputs.shape, targets.shape):
        return None
    return outputs, targets
