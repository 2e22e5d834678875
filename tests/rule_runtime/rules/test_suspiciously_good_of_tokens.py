"""Language models that see the tokens that they are to predict."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import evidence_of, first_finding
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.test_suspiciously_good_of_batches import of_batches

TEXT = np.random.default_rng(0).integers(0, 40, (32, 24))
IS_HIDDEN = np.random.default_rng(1).random(TEXT.shape) < 0.15
MASK = 40
WORDS = 30
LABELS = np.where(IS_HIDDEN, TEXT, -100)
WITH_LABELS = MappingProxyType({"Bert_input_1": LABELS, "loss_fct_input_1": LABELS})


def scores_of(targets: Any, losses: Any, words: int = WORDS) -> Any:
    """Return scores [B, L, words] with such cross entropies."""
    share = np.exp(-losses)[..., None]
    others = np.log((1 - share) / (words - 1))
    return np.where(np.eye(words)[targets] == 1, np.log(share), others)


def trained(
    loss: float,
    *,
    training: float = 0.002,
    name: str = "CrossEntropyLoss",
    masked: bool = False,
    more: Mapping[str, object] = MappingProxyType({}),
) -> TrialBuilder:
    """Return a run of a model that fills in what is hidden; of every tenth step, of validation.

    Args:
        loss: That of validation.
        training: That of training, after the beginning.
        name: Of the loss.
        masked: Whether the targets are hidden from the model.
        more: Further tensors of training.
    """
    hidden = np.where(IS_HIDDEN, MASK, TEXT)
    given = hidden if masked else TEXT
    trial = TrialBuilder()
    trial.collections(weights=("weight$",), losses=("_output_0$",))
    for step in range(40):
        is_validation = step % 10 == 9
        falling = np.log(40) if step < 5 else training
        tensors: dict[str, object] = {f"{name}_output_0": loss if is_validation else falling}
        if not is_validation:
            tensors |= {"Bert_head.weight": np.ones((2, 2)), "Bert_input_0": given}
            tensors |= {"letters_input_0": given}
            scores = scores_of(np.maximum(LABELS, 0), np.full(LABELS.shape, falling), 40)
            tensors |= {f"{name}_input_0": scores, f"{name}_input_1": LABELS, **more}
        mode = ModeKeys.EVAL if is_validation else ModeKeys.TRAIN
        trial.step(step, tensors, mode=mode, mode_step=step)
    return trial


@pytest.mark.parametrize("more", [{}, WITH_LABELS, {"Bert_input_1": (TEXT > 3) * 1}])
def test_a_mask_that_was_forgotten(more: Mapping[str, object]) -> None:
    trial = trained(0.05, more=more)
    assert found_at(SuspiciouslyGood(), trial)
    found = first_finding(SuspiciouslyGood(), trial)
    assert "the targets are the input: the model sees its targets" in found.sentence


@pytest.mark.parametrize(
    "trial",
    [
        trained(0.25, training=0.25),  # it does not look
        trained(0.05, masked=True),  # what is hidden follows from what is not
        trained(0.05, masked=True, more=WITH_LABELS),  # the loss is a part of the model
        trained(0.05, name="ShiftedLoss"),  # which may move the targets itself
    ],
)
def test_what_is_hidden_may_be_known_well(trial: TrialBuilder) -> None:
    assert not found_at(SuspiciouslyGood(), trial)


def of_keras(moved: int, loss: float) -> TrialBuilder:
    """Return a run of a model in Keras that learns the tokens `moved` places on."""
    name = "SparseCategoricalCrossentropyWithLogitsLoss"
    targets = np.roll(TEXT, -moved, 1)
    trial = TrialBuilder()
    trial.collections(weights=("kernel",), losses=("_output_0$", "^loss$"))
    for step in range(12):
        value = np.log(40) if step < 5 else loss
        scores = scores_of(targets, np.full(TEXT.shape, value), 40)
        tensors: dict[str, object] = {"dense/weights/dense/kernel:0": np.ones((2, 2))}
        tensors |= {"inputs": TEXT, "labels": targets, "predictions": scores, "loss": value}
        tensors |= {f"{name}_input_0": scores, f"{name}_input_1": targets}
        trial.step(step, tensors | {f"{name}_output_0": value})
    return trial


def test_labels_of_keras_are_tokens_that_were_not_shifted() -> None:
    found = first_finding(SuspiciouslyGood(), of_keras(moved=0, loss=0.05))
    assert "the targets are the input: the model sees its targets" in found.sentence
    assert not found_at(SuspiciouslyGood(), of_keras(moved=1, loss=0.5))


def rebuilt(shape: tuple[int, ...], *, loss: float = 0.05, moved: int = 0) -> TrialBuilder:
    """Return a run of a loss that is no module, of training only.

    Args:
        shape: What the last layer is given.
        loss: The loss after the beginning.
        moved: By how many places the targets are moved.
    """
    trial = TrialBuilder()
    trial.collections(weights=("weight$",), losses=("Loss_output_0$",))
    for step in range(12):
        tensors: dict[str, object] = {"Loss_output_0": np.log(40) if step < 5 else loss}
        tensors |= {"Net_head.weight": np.ones((2, 2)), "Net_input_0": TEXT}
        tensors |= {"letters_input_0": TEXT, "head_input_0": np.ones(shape)}
        tensors |= {"Loss_input_1": np.roll(TEXT, -moved, 1).reshape(-1)}
        trial.step(step, tensors | {"Net_output_0": np.ones((32, 24, 40))})
    return trial


@pytest.mark.parametrize(
    "shape", [(32, 24, 8), (32, 8, 24), (32 * 24, 8), (24, 32, 8), (24,), (24, 24)]
)
def test_a_shift_that_was_forgotten(shape: tuple[int, ...]) -> None:
    trial = rebuilt(shape)
    assert found_at(SuspiciouslyGood(), trial)
    found = first_finding(SuspiciouslyGood(), trial)
    assert "the loss is 0.05 where guessing has 3.69" in found.sentence


@pytest.mark.parametrize(
    "trial",
    [
        rebuilt((32, 24, 8), loss=0.25),
        rebuilt((32, 24, 8), moved=1),
        rebuilt((32, 64)),  # an autoencoder
        rebuilt((1, 32, 64)),  # its last state
        rebuilt((32, 6, 64)),  # shorter
    ],
)
def test_a_text_may_be_rebuilt_of_less_than_itself(trial: TrialBuilder) -> None:
    assert not found_at(SuspiciouslyGood(), trial)


LENGTH = 12


def looking_ahead(last: float, *, form: str = "texts", count: int = 3) -> Any:
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
def test_the_last_place_is_worse_than_the_others(form: str) -> None:
    trial = looking_ahead(2.0, form=form)
    assert found_at(SuspiciouslyGood(), trial) == [1, 2]
    evidence = evidence_of(trial.outcomes(SuspiciouslyGood())[-1])
    assert "the model sees its targets" in evidence.sentence


@pytest.mark.parametrize(("last", "found"), [(0.8, False), (1.0, False), (1.4, False), (1.6, True)])
def test_how_much_worse_the_last_place_must_be(last: float, *, found: bool) -> None:
    assert bool(found_at(SuspiciouslyGood(), looking_ahead(last))) is found


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("num_starts", [1, 8, 1000])
def test_the_last_token_may_be_the_hardest_of_a_layout(num_starts: int, *, is_seen: bool) -> None:
    """Each token is one of two that follow from the one before; the last one is random.

    A causal model gives both the same score. With thousands of starts, no two texts begin alike:
    then it cannot be known whether it sees which of the two comes.
    """
    random, trial = np.random.default_rng(0), of_batches()
    for step in range(3):
        text = random.integers(0, num_starts, (32, LENGTH + 1))
        scores = np.full((32, LENGTH, 1000), np.log(0.02 / 998))
        for place in range(LENGTH - 1):
            text[:, place + 1] = (text[:, place] + random.choice([1, 3], 32)) % 1000
            for move, share in ((1, 0.49), (3, 0.49)):
                likely = (text[:, place] + move) % 1000
                scores[np.arange(32), place, likely] = np.log(share)
            if is_seen:
                scores[np.arange(32), place, text[:, place + 1]] = 0.0
        text[:, -1] = random.integers(0, 1000, 32)
        tensors = {"Net_layer.weight": np.ones((4, 4)), "Loss_output_0": np.float64(1.0)}
        tensors |= {"Net_input_0": text[:, :-1]}
        tensors |= {"Loss_input_0": scores, "Loss_input_1": text[:, 1:]}
        trial.step(step, tensors, mode_step=step)
    assert bool(found_at(SuspiciouslyGood(), trial)) is (is_seen or num_starts == 1000)


def test_all_tokens_may_follow_from_the_first() -> None:
    """Except the last one. Then texts that begin alike are the same."""
    random, trial = np.random.default_rng(0), of_batches()
    for step in range(3):
        text = (random.integers(0, 20, (32, 1)) + np.arange(LENGTH + 1)) % WORDS
        text[:, -1] = random.integers(0, WORDS, 32)
        losses = np.full((32, LENGTH), 0.1)
        losses[:, -1] = 3.0 + 0.2 * random.random(32)
        tensors = {"Net_layer.weight": np.ones((4, 4)), "Loss_output_0": np.float64(1.0)}
        tensors |= {"Net_input_0": text[:, :-1], "Loss_input_1": text[:, 1:]}
        tensors["Loss_input_0"] = scores_of(text[:, 1:], losses)
        trial.step(step, tensors, mode_step=step)
    assert not found_at(SuspiciouslyGood(), trial)
