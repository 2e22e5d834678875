"""PlateauedLoss where outputs have nothing to do with their targets."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import SavedStep
from tests.rule_runtime.rules.runs import found_at, trial_of


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
        trial_of(saved(rows=5)),  # nothing would show
        trial_of(saved(last_values=50)),
        trial_of(saved(name="TripletLoss")),  # what such a loss gets need not be targets
        trial_of(saved(steps=140)),
    ],
)
def test_healthy_neighbours(trial: TrialBuilder) -> None:
    assert not found_at(PlateauedLoss(), trial)


def test_a_discriminator_beside_another_loss_need_not_know_its_targets() -> None:
    steps = [
        step._replace(tensors={**step.tensors, "OtherLoss_output_0": np.float64(1.0)})
        for step in saved()
    ]
    messages = [
        outcome.evidence.sentence
        for outcome in trial_of(steps).outcomes(PlateauedLoss())
        if isinstance(outcome, IssueFound)
    ]
    assert not any("unrelated" in message for message in messages)
