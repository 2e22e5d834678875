"""Outcomes where EVAL steps have no loss, such as passes of a teacher in a distillation."""

from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotApplicable, Outcome
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import reason_of
from tests.rule_runtime.rules.runs import LOSS

RULES = [GeneralisationGap()]


def step_of(trial: TrialBuilder, step: int, mode: ModeKeys, loss: float | None) -> None:
    tensors = {"Net_input_0": np.ones(3)} if loss is None else {LOSS: np.float64(loss)}
    trial.step(step, tensors, mode=mode, mode_step=step)


def run_of(losses: dict[ModeKeys, float | None], *, num_steps: int = 20) -> TrialBuilder:
    """Return a run of steps of each of these modes in turn."""
    trial = TrialBuilder()
    for step in range(num_steps):
        mode = list(losses)[step % len(losses)]
        step_of(trial, step, mode, losses[mode])
    return trial


def last_outcome(rule: GeneralisationGap, trial: TrialBuilder) -> Outcome:
    return trial.outcomes(rule)[-1]


@pytest.mark.parametrize("rule", RULES)
def test_training_without_a_validation_loss(
    rule: GeneralisationGap,
) -> None:
    trial = run_of({ModeKeys.TRAIN: 0.5, ModeKeys.EVAL: None})
    for step in range(20, 60):
        step_of(trial, step, ModeKeys.EVAL, None)
    reason = reason_of(last_outcome(rule, trial))
    assert reason.startswith("no validation loss was saved: call model.eval()")
    assert reason.startswith(trial.evaluate(rule).counts.main_reason)


@pytest.mark.parametrize("rule", RULES)
def test_a_pass_without_a_loss_after_passes_with_one(rule: GeneralisationGap) -> None:
    trial = run_of({ModeKeys.TRAIN: 0.5, ModeKeys.EVAL: 0.5})
    step_of(trial, 20, ModeKeys.EVAL, None)
    assert isinstance(last_outcome(rule, trial), NotApplicable)


@pytest.mark.parametrize(
    "losses",
    [
        {ModeKeys.EVAL: None},
        {ModeKeys.TRAIN: None, ModeKeys.EVAL: None},
        {ModeKeys.TRAIN: 0.5, ModeKeys.EVAL: np.nan},
        {ModeKeys.EVAL: 0.5, ModeKeys.TRAIN: None},
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_steps_without_any_loss(
    rule: GeneralisationGap, losses: dict[ModeKeys, float | None]
) -> None:
    reason = reason_of(last_outcome(rule, run_of(losses)))
    assert reason in ("no loss was saved", "no saved loss is finite")
