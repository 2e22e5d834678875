"""PlateauedLoss where all that was learned is how frequent classes are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

SHARES = np.array([0.5, 0.2, 0.2, 0.1])
ENTROPY = -float((SHARES * np.log(SHARES)).sum())  # 1.22, and ln 4 is 1.39


def run_of(
    level: float,
    *,
    right: float = 0.0,
    shares: Any = SHARES,
    noise: float = 0.02,
    steps: int = 250,
    falls: float = 0.0,
    name: str = "CrossEntropyLoss_output_0",
    beside: dict[str, Any] | None = None,
) -> TrialBuilder:
    """Return a run that falls from guessing within 40 steps, to a level beside the entropy."""
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    entropy = -float((shares * np.log(shares)).sum())
    for step in range(0, steps, 5):
        share = min(step / 40, 1.0)
        loss = (1 - share) * np.log(len(shares)) + share * entropy * (level - falls * step / steps)
        labels = random.choice(len(shares), 200, p=shares)
        is_right = random.uniform(size=200) < right
        tensors = {
            "CrossEntropyLoss_input_0": np.eye(len(shares))[labels]  # they go together a little
            + random.normal(size=(200, len(shares))),
            "CrossEntropyLoss_input_1": labels,
            "labels": labels,
            "predictions": np.where(is_right, labels, 0),
            name: np.float64(loss + noise * random.normal()),
            **(beside or {}),
        }
        trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=step)
    return trial


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({"level": 1.0}, True),
        ({"level": 0.97}, True),
        ({"level": 0.93}, False),
        ({"level": 1.0, "right": 0.3}, False),  # it answers better than that
        ({"level": 1.0, "noise": 0.3}, False),
        ({"level": 1.1, "falls": 0.2}, False),  # it still falls
        ({"level": 1.0, "steps": 140}, False),
        ({"level": 1.0, "shares": np.array([0.94, 0.02, 0.02, 0.02])}, False),
        ({"level": 1.0, "name": "MSELoss_output_0"}, False),
        ({"level": 1.0, "beside": {"OtherLoss_output_0": np.float64(0.0)}}, False),
        ({"level": 1.0, "beside": {"predictions": np.full(200, 0.5)}}, False),
    ],
)
def test_a_loss_that_is_what_one_answer_gives(changes: dict[str, Any], *, is_found: bool) -> None:
    found = found_at(PlateauedLoss(), run_of(**changes))
    assert bool(found) is is_found
    assert not found or min(found) >= 150


def test_classes_of_a_language_are_too_many() -> None:
    for num_classes, is_found in ((30, True), (70, False)):
        shares = np.append(np.full(num_classes - 1, 0.7 / (num_classes - 1)), 0.3)
        assert bool(found_at(PlateauedLoss(), run_of(1.0, shares=shares))) is is_found


def run_of_yes_and_no(
    losses: Iterable[float], *, share: float = 0.2, name: str = "BCEWithLogitsLoss"
) -> TrialBuilder:
    """Train on 0 and 1, of which a share is 1, given with the loss."""
    trial = TrialBuilder()
    targets = (np.arange(200) < 200 * share).astype(np.float32)
    for at, loss in enumerate(losses):
        tensors = {
            f"{name}_input_0": np.linspace(-1, 1, 200).astype(np.float32),
            f"{name}_input_1": targets,
            f"{name}_output_0": np.float64(loss),
        }
        trial.step(5 * at, tensors, mode_step=5 * at)
    return trial


OF_ONES = -0.2 * np.log(0.2) - 0.8 * np.log(0.8)
NOISE = np.random.default_rng(0).normal(0, 0.01, 60)


@pytest.mark.parametrize(
    ("losses", "is_found"),
    [
        (OF_ONES + NOISE, True),  # what is learned is how frequent the ones are
        (0.98 * OF_ONES + NOISE, True),
        (0.9 * OF_ONES + NOISE, False),
        (np.log(2) + 0.1 * 0.9 ** np.arange(60), True),  # half is answered everywhere
        (OF_ONES * 0.995 ** np.arange(60) + NOISE, False),
    ],
)
def test_the_share_of_ones_is_not_all_there_is_to_learn(
    losses: np.ndarray, *, is_found: bool
) -> None:
    trial = run_of_yes_and_no([*[0.7] * 4, *losses])
    found = [step for step in found_at(PlateauedLoss(), trial) if step >= 150]
    assert bool(found) is is_found


@pytest.mark.parametrize(
    "trial",
    [
        run_of_yes_and_no([*[1.4] * 4, *(OF_ONES + NOISE)]),  # ones have a weight
        run_of_yes_and_no([*[0.7] * 4, *(0.325 + NOISE)], share=0.1),  # ones are rare
        run_of_yes_and_no([*[0.7] * 4, *(OF_ONES + NOISE)], share=0.0),
        run_of_yes_and_no([*[0.7] * 4, *(OF_ONES + NOISE)], name="FocalLoss"),
    ],
)
def test_losses_of_yes_and_no_that_tell_nothing_of_it(trial: TrialBuilder) -> None:
    assert not found_at(PlateauedLoss(), trial)


COLUMNS = np.array([0.5, 0.45, 0.1, 0.1])
OF_COLUMNS = -float((COLUMNS * np.log(COLUMNS) + (1 - COLUMNS) * np.log(1 - COLUMNS)).mean())


@pytest.mark.parametrize(
    ("level", "has_labels", "is_found"),
    [(1.0, True, True), (0.98, True, True), (0.9, True, False), (1.0, False, False)],
)
def test_each_column_of_labels_has_its_own_frequency(
    level: float, *, has_labels: bool, is_found: bool
) -> None:
    """The entropy of the columns is 0.5, that of all of them together 0.6."""
    trial = TrialBuilder()
    targets = (np.arange(200)[:, None] < 200 * COLUMNS).astype(np.float32)
    for at, loss in enumerate([*[0.7] * 4, *(level * OF_COLUMNS + NOISE)]):
        tensors = {
            "BCEWithLogitsLoss_input_0": np.linspace(-1, 1, 800).reshape(200, 4),
            "BCEWithLogitsLoss_input_1": targets,
            "BCEWithLogitsLoss_output_0": np.float64(loss),
        }
        beside = {"labels": targets} if has_labels else {}
        trial.step(5 * at, {**tensors, **beside}, mode_step=5 * at)
    found = [step for step in found_at(PlateauedLoss(), trial) if step >= 150]
    assert bool(found) is is_found


@pytest.mark.parametrize(("num_alike", "is_found"), [(1, True), (64, False)])
def test_targets_that_a_script_makes_up_have_no_frequencies(
    num_alike: int, *, is_found: bool
) -> None:
    """As a discriminator's: all are real in one pass, and none is in another."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    for step in range(0, 300, 5):
        targets = random.integers(2, size=(64 // num_alike, 1)).repeat(num_alike, axis=1).ravel()
        tensors = {
            "BCELoss_input_0": np.full(64, 0.5) + 0.01 * random.normal(size=64),
            "BCELoss_input_1": targets.astype(np.float32),
            "BCELoss_output_0": np.float64(np.log(2) + 0.001 * random.normal()),
        }
        trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=step)
    assert bool(found_at(PlateauedLoss(), trial)) == is_found


@pytest.mark.parametrize(
    ("level", "spread", "is_found"),
    [
        (1.0, 5.0, True),
        (0.97, 5.0, True),
        (0.9, 5.0, False),  # it knows something of them
        (1.5, 5.0, False),  # of squares that are weighted, or added up
        (1.0, 0.001, False),  # hardly anything is to be learned
    ],
)
@pytest.mark.parametrize("differ", [0.0, 20.0])
def test_the_mean_is_not_all_there_is_to_learn_of_numbers(
    level: float, spread: float, differ: float, *, is_found: bool
) -> None:
    """Batches scatter so much that the loss alone would not tell."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    for step in range(0, 400, 5):
        targets = (
            3
            + differ * random.normal()
            + spread * random.choice([0.2, 1.0, 3.0]) * random.normal(size=64)
        )
        tensors = {
            "MSELoss_input_0": random.normal(3, 0.1, size=64).astype(np.float32),
            "MSELoss_input_1": targets.astype(np.float32),
            "MSELoss_output_0": level * targets.var() * (1 + 0.02 * random.normal()),
        }
        trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=step)
    found = found_at(PlateauedLoss(), trial)
    assert bool(found) is (is_found and not differ)  # of groups of their own the mean is much
    if found:
        outcomes = trial.outcomes(PlateauedLoss())
        outcome = next(each for each in outcomes if isinstance(each, IssueFound))
        assert "of the variance of its targets" in outcome.evidence.sentence


@pytest.mark.parametrize(
    ("first_bins", "start", "fall", "is_found"),
    [
        (30, 1.0, 0.0, True),
        (30, 1.12, 0.04, True),
        (30, 1.12, 0.06, False),  # it falls on as it did before
        (4, 3.0, 2.0, True),  # it only came from its beginning
    ],
)
def test_numbers_of_which_ever_more_is_known(
    first_bins: int, start: float, fall: float, *, is_found: bool
) -> None:
    """As of ratings by matrix factorisation: in a short stretch noise hides the trend."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    for at in range(first_bins + 28):
        targets = 5.0 * random.normal(size=64)
        ratio = start - fall * (at >= first_bins) + 0.01 * random.normal()
        tensors = {
            "MSELoss_input_0": random.normal(0, 0.1, size=64).astype(np.float32),
            "MSELoss_input_1": targets.astype(np.float32),
            "MSELoss_output_0": ratio * targets.var(ddof=1),
        }
        trial.step(5 * at, tensors, mode=ModeKeys.TRAIN, mode_step=5 * at)
    assert bool(found_at(PlateauedLoss(), trial)) is is_found


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({}, True),
        ({"has_values": False}, False),  # classes may have weights
        ({"weight": 7 / 3, "level": 0.15}, False),  # guessing would be ln 2
        ({"level": 0.1}, False),  # a little is learned
    ],
)
def test_two_classes_without_predictions(changes: dict[str, Any], *, is_found: bool) -> None:
    found = found_at(PlateauedLoss(), two_classes(**changes))
    assert bool(found) is is_found
    assert not found or min(found) >= 150


def two_classes(
    *, level: float = 0.0, weight: float = 1.0, has_values: bool = True
) -> TrialBuilder:
    """Return a run that falls from ln 2 to how frequent classes are, 70 and 30 %."""
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    rows = np.arange(100)
    for step in range(0, 300, 5):
        learned = min(step / 40, 1.0)
        labels = random.permutation(rows % 10 // 7)
        known = np.log([0.7, 0.3 * weight])
        scores = learned * known + 0.1 * random.normal(size=(100, 2))
        scores[rows, labels] += learned * level
        losses = np.log(np.exp(scores).sum(1)) - scores[rows, labels]
        weights = np.where(labels == 1, weight, 1.0)
        tensors = {
            "CrossEntropyLoss_input_0": scores.astype(np.float32),
            "CrossEntropyLoss_input_1": labels,
            "CrossEntropyLoss_output_0": np.float64((weights * losses).sum() / weights.sum()),
        }
        saved = has_values and step % 100 == 0
        trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=step, save_values=saved)
    return trial
