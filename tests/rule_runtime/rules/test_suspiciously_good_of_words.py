"""Texts that name their class, and models of texts that look ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.test_suspiciously_good_of_batches import of_batches

ROWS = 48
LENGTH = 12
WORDS = 30


def scores_of(targets: Any, losses: Any) -> Any:
    """Return scores [B, L, WORDS] with such cross entropies."""
    share = np.exp(-losses)[..., None]
    others = np.log((1 - share) / (WORDS - 1))
    return np.where(np.eye(WORDS)[targets] == 1, np.log(share), others)


def foreseeing(last: float, *, form: str = "texts", count: int = 3) -> Any:
    """Return a training of a model of texts, whose loss is 1 but at the last place."""
    random = np.random.default_rng(0)
    trial = of_batches()
    for step in range(count):
        text = random.integers(0, WORDS, (16, LENGTH + 1))
        losses = np.full((16, LENGTH), 1.0) + 0.2 * random.random((16, LENGTH))
        losses[:, -1] *= last
        scores, targets = scores_of(text[:, 1:], losses), text[:, 1:]
        if form == "flat":
            scores, targets = scores.reshape(-1, WORDS), targets.reshape(-1)
        if form == "turned":
            scores = scores.transpose(0, 2, 1)
        tensors = {"Net_layer.weight": np.ones((4, 4)), "Loss_output_0": np.float64(1.0)}
        tensors |= {"Net_input_0": text[:, :-1], "Loss_input_0": scores, "Loss_input_1": targets}
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize("form", ["texts", "flat", "turned"])
def test_all_places_but_the_last_are_foreseen(form: str) -> None:
    trial = foreseeing(2.0, form=form)
    assert found_at(SuspiciouslyGood(), trial) == [1, 2]
    outcome = trial.outcomes(SuspiciouslyGood())[-1]
    assert isinstance(outcome, IssueFound)
    assert "the model sees its targets" in outcome.evidence.sentence


@pytest.mark.parametrize(("last", "found"), [(0.8, False), (1.0, False), (1.4, False), (1.6, True)])
def test_how_much_worse_the_last_place_must_be(last: float, *, found: bool) -> None:
    assert bool(found_at(SuspiciouslyGood(), foreseeing(last))) is found
