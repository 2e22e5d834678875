"""Validation with moving averages of batch normalisation, right only after some hundred steps."""

from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key
from rule_runtime.engine.outcome import NotEvaluated, Passed
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import LOSS, found_at

_OF_KERAS = "batch_normalization/weights/batch_normalization/moving_mean:0"
_LENGTH = 50
"""Steps of training ahead of each pass."""


def run(passes: list[float], weight: str = _OF_KERAS) -> TrialBuilder:
    """Return a run with a training loss of 0.1 but at first, that saves each tenth of its steps."""
    trial = TrialBuilder()
    entries = {
        "losses": CollectionEntry("losses", ("_output_0$",)),
        "weights": CollectionEntry("weights", tensor_names=(weight,)),
    }
    trial.store.put(collections_key("worker_0"), CollectionsFile(entries, num_workers=1).encode())
    for at, validation in enumerate(passes):
        for step in range(at * _LENGTH, (at + 1) * _LENGTH, 10):
            loss = 0.1 if step else 2.3
            trial.step(step + at, {LOSS: np.float64(loss)}, mode=ModeKeys.TRAIN, mode_step=step)
        step = (at + 1) * _LENGTH + at
        trial.step(step, {LOSS: np.float64(validation)}, mode=ModeKeys.EVAL, mode_step=at)
    return trial


@pytest.mark.parametrize("warming", [[2.3] * 9, [2.0, 2.5, 3.1, 3.6, 3.2, 2.4, 1.8, 1.2, 0.7]])
def test_averages_that_are_not_right_yet_are_no_gap(warming: list[float]) -> None:
    trial = run([*warming, 0.3, 0.1, 0.1])
    assert not found_at(GeneralisationGap(), trial)
    outcomes = trial.outcomes(GeneralisationGap())
    message = [o.reason for o in outcomes if isinstance(o, NotEvaluated)]
    assert any("moving averages" in reason for reason in message)
    assert isinstance(outcomes[-1], Passed)


def test_a_gap_behind_them_is_found() -> None:
    # The tenth pass ends 490 steps behind the first loss; the twelfth is the second in a row.
    found = found_at(GeneralisationGap(), run([2.3] * 14))
    assert found[0] == 12 * _LENGTH + 11
    assert len(found) == 3


@pytest.mark.parametrize("weight", ["bn.weight", "dense/weights/dense/kernel:0"])
def test_other_models_are_judged_from_the_beginning(weight: str) -> None:
    assert found_at(GeneralisationGap(), run([2.3] * 5, weight))[0] == 2 * _LENGTH + 1
