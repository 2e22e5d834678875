"""Losses of places, beside those of torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rule_runtime.numerics.place_losses import are_foreseen, losses_of_places

SHAPE = (9, 8)
SCORES = torch.randn(*SHAPE, 5, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(72).view(SHAPE) % 5


@pytest.mark.parametrize(
    ("scores", "targets"),
    [
        (SCORES, TARGETS),
        (SCORES.transpose(1, 2), TARGETS),
        (SCORES.flatten(0, 1), TARGETS.flatten()),
        (SCORES.log_softmax(2), TARGETS),
    ],
)
def test_they_are_those_of_torch_in_each_layout(
    scores: torch.Tensor, targets: torch.Tensor
) -> None:
    known = torch.nn.functional.cross_entropy(SCORES.transpose(1, 2), TARGETS, reduction="none")
    found = losses_of_places(scores.numpy(), targets.numpy(), SHAPE)
    assert found is not None
    assert np.allclose(found, known.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("scores", "targets"),
    [
        (SCORES[:, :4], TARGETS),  # of fewer places
        (SCORES, TARGETS - 1),  # what is not asked
        (SCORES, TARGETS + 1),  # a word without a score
        (SCORES / 0, TARGETS),
        (SCORES.long(), TARGETS),
    ],
)
def test_what_are_no_scores_of_the_words_has_none(
    scores: torch.Tensor, targets: torch.Tensor
) -> None:
    assert losses_of_places(scores.numpy(), targets.numpy(), SHAPE) is None


def test_only_the_last_place_is_not_foreseen() -> None:
    losses = 0.1 + 0.01 * np.random.default_rng(0).random(SHAPE)
    assert not are_foreseen(losses)
    losses[:, -1] = 2.0 + 0.1 * np.arange(SHAPE[0])
    assert are_foreseen(losses)
    assert not are_foreseen(losses[:7])  # too few rows
    losses[:, -5:-1] = 2.0  # what comes late in a text is harder
    assert not are_foreseen(losses)
    losses = np.full(SHAPE, 0.1)
    losses[0, -1] = 9.0  # one row does not tell
    assert not are_foreseen(losses)
