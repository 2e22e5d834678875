"""What is kept of passes of validation, and which training losses they are compared with."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import Missing
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_evaluations import memory_sizes
from tests.rule_runtime.rules.runs import LOSS, found_at

EVAL, TRAIN = ModeKeys.EVAL, ModeKeys.TRAIN


def run(passes: list[tuple[float, float]]) -> TrialBuilder:
    """Return a run that saves one loss of training ahead of each pass of one step."""
    trial = TrialBuilder()
    for at, (training, validation) in enumerate(passes):
        trial.step(2 * at, {LOSS: np.float64(training)}, mode=TRAIN, mode_step=10 * at)
        trial.step(2 * at + 1, {LOSS: np.float64(validation)}, mode=EVAL, mode_step=at)
    return trial


def test_a_new_task_is_not_compared_with_the_training_of_the_task_before() -> None:
    learned = [(0.7, 0.6), (0.3, 0.25), (0.1, 0.1), *[(0.02, 0.03)] * 20]
    new = [(0.65, 0.6), (0.35, 0.3), (0.2, 0.15), (0.1, 0.1), (0.05, 0.05)]
    assert not found_at(GeneralisationGap(), run([*learned, *new, *learned]))
    by_heart = [(0.65, 0.6), (0.05, 0.5), (0.02, 0.5), (0.02, 0.5)]
    assert found_at(GeneralisationGap(), run([*learned, *by_heart]))


def test_a_training_that_is_saved_less_often_than_validation_is_compared_as_well() -> None:
    trial = TrialBuilder()
    for step in range(40):
        is_training = step % 8 == 0
        loss = np.float64((0.01 if step else 0.7) if is_training else 0.6)
        trial.step(step, {LOSS: loss}, mode=TRAIN if is_training else EVAL, mode_step=step)
    assert found_at(GeneralisationGap(), trial)


@pytest.mark.parametrize("rule", [GeneralisationGap()])
def test_a_new_name_of_the_loss_at_every_pass_needs_no_more_memory(rule: Any) -> None:
    numbers = np.random.default_rng(0)
    trial = TrialBuilder()
    trial.collections(losses=("_output_0$",))
    for step in range(400):
        name = f"MSELoss_{step // 2}"
        tensors: dict[str, Any] = {f"{name}_output_0": np.float64(1.0)}
        tensors[f"{name}_input_0"] = numbers.normal(size=(8, 1))
        tensors[f"{name}_input_1"] = numbers.normal(size=(8, 1)).astype(np.float32)
        mode = TRAIN if step % 2 else EVAL
        trial.step(step, tensors, mode=mode, mode_step=step // 2)
    sizes = memory_sizes(trial.views(), rule)
    assert max(sizes) < 1.01 * max(sizes[:200])


@pytest.mark.parametrize(
    ("targets", "loss"),
    [
        (np.full(4, np.nan), 1.0),
        (np.array([1e200, -1e200, 0, 1]), 1.0),
        (np.array([np.inf, 1, 2, 3]), 1.0),
        (np.ones(4), 1.7e308),
        (np.ones(4), -1.7e308),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_remembered_is_json(targets: Any, loss: float) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("_output_0$",))
    for step in range(24):
        tensors = {"MSELoss_input_0": np.zeros(4), "MSELoss_input_1": targets}
        mode = EVAL if step % 4 else TRAIN
        trial.step(step, {**tensors, "MSELoss_output_0": np.float64(loss)}, mode=mode)
    rule = GeneralisationGap()
    memory: dict[str, Any] = {}
    for view in trial.views():
        with contextlib.suppress(Missing):
            rule.check(view, memory)
        json.dumps(memory, allow_nan=False)
