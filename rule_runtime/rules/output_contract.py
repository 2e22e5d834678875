"""OutputContract: outputs, targets and losses that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import is_training, saved_every
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.losses import Input, Loss, Losses
from rule_runtime.facts.missing import missing_loss
from rule_runtime.facts.output_contract import CONTRACT, Requirement, combine_batches, is_pooled
from rule_runtime.facts.validation_passes import has_unsettled_averages
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["OutputContract"]

_AS_IN_TRAINING: Final = "In training it gets others: give it the same kind in validation."


class OutputContract(Rule):
    """Detects outputs, targets and losses that do not fit together, such as a second softmax.

    How it decides:
        A table says what each loss requires of its outputs and targets: range, shape, sum of a row,
        number of units. The rule compares the statistics of each saved step of training and
        validation with it. It reports a broken requirement after `patience` steps, or after
        `range_patience` if chance may break it; in validation, these are steps of two passes or
        more. Batches of fewer than 16 outputs are combined.

    Parameters:
        patience: Saved steps in a row with a broken requirement.
        range_patience: The same for requirements that chance may break.

    What to try:
        Change the two lines of code that the finding names.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 1
    range_patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 10

    collections = saved_every(10, "losses", "loss_inputs", "predictions", "labels", "module_io")
    fatal_measures = ("output_range",)

    def needs(self) -> Needs:
        """Return the saved steps after which each broken requirement is reported."""
        return Needs(saved_steps=max(self.patience, self.range_patience))

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare outputs and targets of each loss with the table.

        Memory: `losses`, and `validation` for mode EVAL: for at most 32 losses, how many times in a
        row each requirement was broken, and at first; and the state of `combine_batches`.
        """
        is_of_training = is_training(step)
        if not is_of_training and step.mode is not ModeKeys.EVAL:
            return NotApplicable(f"losses of mode {step.mode.name} are not evaluated")
        try:
            known = _with_inputs(step)
        except Missing as missing:
            if is_of_training:
                raise
            return NotApplicable(f"{missing.reason} in validation")
        states = memory.setdefault("losses" if is_of_training else "validation", {})
        found, advice = [], ""
        for loss, row, batch in known:
            if loss.key not in states and len(states) >= MAX_SERIES:
                continue
            state = states.setdefault(loss.key, {})
            for requirement, value, pair in self._broken(step, loss, batch, state):
                measured = (requirement.measure, value, requirement.limit)
                text = requirement.text(loss, *pair, value)
                text = text if is_of_training else f"in validation it {text}"
                remedy = _remedy(requirement, loss, memory, is_of_training=is_of_training)
                if requirement.is_advice:
                    advice = advice or f"{loss.name}: {text}. {remedy}"
                else:
                    found.append(finding(self, step, row, measured, text, remedy=remedy))
        return found[0] if found else Passed(advice)

    def _broken(
        self, step: StepView, loss: Loss, batch: tuple[Input, Input], state: dict[str, Any]
    ) -> Iterator[tuple[Requirement, float, tuple[Input, Input]]]:
        """Yield the requirements that were broken long enough, with values, outputs and targets."""
        is_of_training = is_training(step)
        is_settled = is_of_training or not has_unsettled_averages(step)
        combined = combine_batches(state, batch)
        for number, requirement in enumerate(CONTRACT):
            pair = combined if requirement.needs_many else batch
            if pair is None:
                continue
            value = requirement.broken(loss, *pair)
            if requirement.from_start and not state.setdefault("from_start", value is not None):
                value = None
            if value is not None and requirement.ignores_pooled and is_pooled(step, loss):
                value = None
            if requirement.is_constant and not is_settled:
                value = None
            patience = self.range_patience if requirement.may_be_chance else self.patience
            # Combined batches may include outputs of initial weights, such as zeros.
            patience += pair[0].size > batch[0].size
            num_bad = streak(state, is_bad=value is not None, name=str(number))
            if not is_of_training and requirement.may_be_chance:
                num_bad = num_bad if _is_of_two_passes(step, state, number) else 0
            if value is not None and num_bad >= patience:
                yield requirement, value, pair


def _with_inputs(step: StepView) -> list[tuple[Loss, tuple[TensorRows, int], tuple[Input, Input]]]:
    """Return the losses with their rows, outputs and targets.

    Raises:
        Missing: If there is none.
    """
    losses = step.fact(Losses)
    listed = [(loss, (losses.rows, loss.row)) for loss in losses.losses] + losses.failed()
    listed += losses.predicted()
    if not listed:
        raise missing_loss(step)
    known = [(*one, pair) for one in listed if (pair := _pair(one[0])) is not None]
    if not known:
        raise Missing("no inputs of losses were saved", advice_of(step).loss_inputs)
    return known


def _is_of_two_passes(step: StepView, state: dict[str, Any], number: int) -> bool:
    """Return whether a streak includes an earlier validation pass, with other weights.

    Memory: in `since`, the number of training steps before each streak.
    """
    since, num_training_steps = state.setdefault("since", {}), step.step - step.mode_step
    if state[str(number)] <= 1:
        since[str(number)] = num_training_steps
    return bool(since[str(number)] != num_training_steps)


def _remedy(requirement: Requirement, loss: Loss, memory: Memory, *, is_of_training: bool) -> str:
    """Return the remedy; training, if it meets the requirement, shows what the loss should get."""
    number, in_training = CONTRACT.index(requirement), memory.get("losses", {}).get(loss.key)
    if is_of_training or in_training is None or in_training.get(str(number)):
        return requirement.remedy(loss)
    return _AS_IN_TRAINING


def _pair(loss: Loss) -> tuple[Input, Input] | None:
    """Return outputs and targets, if both shapes were saved."""
    outputs, targets = loss.outputs, loss.targets
    if outputs is None or targets is None or None in (outputs.shape, targets.shape):
        return None
    return outputs, targets
