"""Losses of the same targets by the scores of other sequences with an equal start."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rule_runtime.facts.token_losses import TokenLosses, token_losses
from rule_runtime.testing import TrialBuilder
from tests.tables import table

CLASSES = 4


def losses_of(
    tokens: npt.NDArray[Any],
    targets: npt.NDArray[Any] | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> tuple[TokenLosses, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the losses of random scores, the targets, and each class's cross entropy [B, M, V]."""
    random = np.random.default_rng(0)
    targets = random.integers(0, CLASSES, tokens.shape) if targets is None else targets
    scores = random.normal(size=(*targets.shape, CLASSES)).astype(np.float32)
    trial = TrialBuilder()
    tensors = {"Net_input_0": tokens, "Net_output_0": scores, **more}
    tensors |= {"CrossEntropyLoss_input_0": scores.reshape(-1, CLASSES)}
    tensors |= {"CrossEntropyLoss_input_1": targets.reshape(-1)}
    trial.step(0, {**tensors, "CrossEntropyLoss_output_0": np.float32(1.4)})
    found, *_ = token_losses(*trial.views())
    return found, targets, np.log(np.exp(scores).sum(-1, keepdims=True)) - scores


def test_the_targets_are_judged_by_all_other_sequences_with_an_equal_start() -> None:
    tokens = np.random.default_rng(1).integers(0, 2, (16, 5))
    found, targets, losses = losses_of(tokens)
    expected = np.full(tokens.shape, np.nan)
    for row, place in np.ndindex(*tokens.shape):
        is_twin = (tokens[:, : place + 1] == tokens[row, : place + 1]).all(1)
        is_twin[row] = False
        if is_twin.any():
            expected[row, place] = losses[is_twin, place, targets[row, place]].mean()
    assert found.of_twins is not None
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found.of_twins, expected, rtol=1e-5)


def test_masked_and_dropped_places_have_no_loss() -> None:
    tokens = np.random.default_rng(1).integers(0, 3, (16, 9))
    targets = tokens[:, 4:].copy()
    targets[3, 1] = -100
    found, _, losses = losses_of(tokens, targets)
    assert found.by_place is not None
    assert found.of_twins is not None
    expected = np.full(tokens.shape, np.nan)
    own = np.take_along_axis(losses, np.maximum(targets, 0)[..., None], 2)[..., 0]
    expected[:, 3:8] = np.where(targets < 0, np.nan, own)
    np.testing.assert_allclose(found.by_place, expected, rtol=1e-5)
    assert found.value == pytest.approx(np.nanmean(expected))
    assert np.isnan(found.of_twins[np.isnan(expected)]).all()


TOKENS = np.random.default_rng(1).integers(0, 3, (16, 9))


def test_positions_may_come_first() -> None:
    scores = np.random.default_rng(0).normal(size=(16, 8, CLASSES)).astype(np.float32)
    found = []
    for axes in ((0, 1, 2), (1, 0, 2)):
        in_order = scores.transpose(axes)
        targets = TOKENS[:, 1:].transpose(axes[:2])
        trial = TrialBuilder()
        tensors = {"Net_input_0": TOKENS.transpose(axes[:2]), "Net_output_0": in_order}
        tensors |= {"CrossEntropyLoss_input_0": in_order.reshape(-1, CLASSES)}
        tensors |= {"CrossEntropyLoss_input_1": targets.reshape(-1)}
        trial.step(0, {**tensors, "CrossEntropyLoss_output_0": np.float32(1.4)})
        found += token_losses(*trial.views())
    batch_first, time_first = found
    assert batch_first.by_place is not None
    for name in ("by_place", "of_twins"):
        np.testing.assert_array_equal(getattr(time_first, name), getattr(batch_first, name))
    assert (time_first.value, time_first.keeps_places) == (batch_first.value, True)


@table(
    "more, keeps_places",
    {
        "tokens alone": ({}, True),
        "a mask": ({"Net_input_1": (TOKENS > 0) * 1}, True),
        "labels": ({"Net_input_1": np.where(TOKENS > 0, TOKENS, -100)}, True),
        "labels that are shifted": ({"Net_input_1": np.roll(TOKENS, -1, 1)}, True),
        "a mask of places": ({"Net_input_1": np.zeros((9, 9), np.float32)}, True),
        "other tokens": ({"Net_input_1": 2 - TOKENS}, False),
        "the same to read again": ({"Net_input_1": TOKENS[:, :-1]}, False),
        "numbers of each row": ({"Net_input_1": np.ones((16, 2), np.float32)}, False),
        "a state of each row": ({"Net_input_1": np.ones((1, 16, 8), np.float32)}, False),
        "layers of all places": ({"head_input_0": np.ones((16, 9, 8), np.float32)}, True),
        "a layer of a row": ({"head_input_0": np.ones((16, 8), np.float32)}, False),
    },
)
def test_a_model_of_tokens_alone(more: Mapping[str, object], keeps_places: bool) -> None:
    targets = TOKENS[:, 1:]
    found, *_ = losses_of(TOKENS, targets, {**more, "Net_head.weight": np.ones((2, 2))})
    assert found.keeps_places is keeps_places


def test_many_equal_sequences_take_no_more_memory_than_their_scores() -> None:
    tokens = np.zeros((4096, 2), int)
    tracemalloc.start()
    found, *_ = losses_of(tokens)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.of_twins is not None
    assert not np.isnan(found.of_twins).any()
    assert most < 16 << 20  # a table of all pairs takes 128 MiB
