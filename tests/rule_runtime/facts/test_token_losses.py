"""Losses of the same targets by the scores of other sequences with an equal start."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.token_losses import TokenLosses, token_losses
from rule_runtime.testing import TrialBuilder

CLASSES = 4


def losses_of(tokens: npt.NDArray[Any]) -> tuple[TokenLosses, npt.NDArray[Any]]:
    """Return the losses of random scores, and the cross entropy of each class [B, L, V]."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(*tokens.shape, CLASSES)).astype(np.float32)
    targets = random.integers(0, CLASSES, tokens.shape)
    trial = TrialBuilder()
    tensors = {"Net_input_0": tokens, "Net_output_0": scores}
    tensors |= {"CrossEntropyLoss_input_0": scores.reshape(-1, CLASSES)}
    tensors |= {"CrossEntropyLoss_input_1": targets.reshape(-1)}
    trial.step(0, {**tensors, "CrossEntropyLoss_output_0": np.float32(1.4)})
    (found,) = token_losses(*trial.views())
    return found, np.log(np.exp(scores).sum(-1, keepdims=True)) - scores


def test_the_targets_are_judged_by_all_other_sequences_with_an_equal_start() -> None:
    tokens = np.random.default_rng(1).integers(0, 2, (16, 5))
    found, losses = losses_of(tokens)
    expected = np.full(tokens.shape, np.nan)
    for row, place in np.ndindex(*tokens.shape):
        is_twin = (tokens[:, : place + 1] == tokens[row, : place + 1]).all(1)
        is_twin[row] = False
        if is_twin.any():
            expected[row, place] = losses[is_twin, place, found.targets[row, place]].mean()
    assert found.of_twins is not None
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found.of_twins, expected, rtol=1e-5)


def test_many_equal_sequences_take_no_more_memory_than_their_scores() -> None:
    tokens = np.zeros((4096, 2), int)
    tracemalloc.start()
    found, _ = losses_of(tokens)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.of_twins is not None
    assert not np.isnan(found.of_twins).any()
    assert most < 16 << 20  # a table of all pairs takes 128 MiB
