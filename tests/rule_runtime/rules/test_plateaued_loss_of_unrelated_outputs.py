"""PlateauedLoss where outputs have nothing to do with their targets."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import SavedStep
from tests.rule_runtime.rules.runs import found_at


def saved(
    *,
    share: float = 0.0,
    name: str = "CrossEntropyLoss",
    rows: int = 150,
    falls: float = 0.0,
    last_values: int = 300,
    steps: int = 400,
) -> Iterable[SavedStep]:
    """Yield a run that falls to the frequency of classes, with values at one step in ten."""
    random = np.random.default_rng(1)
    for step in range(0, steps, 5):
        classes = random.integers(0, 6, rows)
        scores = random.normal(size=(rows, 6)) + (step > 0) * 6 * share * np.eye(6)[classes]
        loss = 1.2 + 0.6 * 0.8 ** (step / 5) - falls * step / steps + 0.05 * random.normal()
        tensors = {f"{name}_output_0": np.float64(loss)}
        if step % 50 == 0 and step <= last_values:
            tensors |= {f"{name}_input_0": scores, f"{name}_input_1": classes}
        yield SavedStep(step, tensors, ModeKeys.TRAIN, step)


def trial_of(steps: Iterable[SavedStep]) -> TrialBuilder:
    trial = TrialBuilder()
    for step in steps:
        trial.step(step.step, step.tensors, mode=step.mode, mode_step=step.mode_step)
    return trial


def test_fires_once_there_was_time_to_learn_and_the_first_fall_is_past() -> None:
    found = found_at(PlateauedLoss(), trial_of(saved()))
    assert found
    assert 150 <= min(found) <= 200
    assert max(found) <= 350  # later nobody knows what outputs are like


@pytest.mark.parametrize(
    "trial",
    [
        trial_of(saved(share=0.1)),
        trial_of(saved(share=-0.1)),  # as of distances, which are small for what is alike
        trial_of(saved(falls=1.0)),  # it is about to learn
        trial_of(saved(rows=20)),  # nothing would show
        trial_of(saved(last_values=50)),
        trial_of(saved(name="TripletLoss")),  # of embeddings and their classes
        trial_of(saved(steps=140)),
    ],
)
def test_healthy_neighbours(trial: TrialBuilder) -> None:
    assert not found_at(PlateauedLoss(), trial)


@pytest.mark.parametrize("is_square", [True, False])
def test_a_loss_of_another_name_must_be_of_the_differences(*, is_square: bool) -> None:
    """What a loss gets need not be outputs and targets: logarithms and advantages are not alike."""
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    for step in range(0, 300, 5):
        outputs, targets = random.normal(size=(2, 200))
        loss = ((outputs - targets) ** 2).mean() if is_square else (outputs * targets).mean() + 2
        loss += 20 * (step < 10) * (not is_square)
        tensors = {"OwnLoss_input_0": outputs, "OwnLoss_input_1": targets}
        trial.step(step, {**tensors, "OwnLoss_output_0": np.float64(loss)}, mode_step=step)
    sentences = [
        outcome.evidence.sentence
        for outcome in trial.outcomes(PlateauedLoss())
        if hasattr(outcome, "evidence")
    ]
    assert any("nothing to do with" in sentence for sentence in sentences) is is_square


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.0), (0.0, 0.5), (0.5, 0.0)])
def test_workers_are_looked_at_together(first: float, second: float) -> None:
    trial = TrialBuilder()
    for one, other in zip(saved(share=first), saved(share=second), strict=True):
        for worker, step in (("worker_0", one), ("worker_1", other)):
            trial.step(
                step.step, step.tensors, mode=step.mode, mode_step=step.mode_step, worker=worker
            )
    assert bool(found_at(PlateauedLoss(), trial)) is (first == second)
