"""Outcomes where EVAL steps have no loss, such as passes of a teacher in a distillation."""

from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotApplicable
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import reason_of
from tests.rule_runtime.rules.runs import LOSS

RULE = GeneralisationGap()


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


def test_training_without_a_validation_loss() -> None:
    trial = run_of({ModeKeys.TRAIN: 0.5, ModeKeys.EVAL: None})
    for step in range(20, 60):
        step_of(trial, step, ModeKeys.EVAL, None)
    reason = reason_of(trial.outcomes(RULE)[-1])
    assert reason.startswith("no validation loss was saved: call model.eval()")
    assert reason.startswith(trial.evaluate(RULE).counts.main_reason)


def test_a_pass_without_a_loss_after_passes_with_one() -> None:
    trial = run_of({ModeKeys.TRAIN: 0.5, ModeKeys.EVAL: 0.5})
    step_of(trial, 20, ModeKeys.EVAL, None)
    assert isinstance(trial.outcomes(RULE)[-1], NotApplicable)


@pytest.mark.parametrize(
    "losses",
    [
        {ModeKeys.EVAL: None},
        {ModeKeys.TRAIN: None, ModeKeys.EVAL: None},
        {ModeKeys.TRAIN: 0.5, ModeKeys.EVAL: np.nan},
        {ModeKeys.EVAL: 0.5, ModeKeys.TRAIN: None},
    ],
)
def test_steps_without_any_loss(losses: dict[ModeKeys, float | None]) -> None:
    reason = reason_of(run_of(losses).outcomes(RULE)[-1])
    assert reason.startswith(("no loss was saved: ", "no saved loss is finite: "))
