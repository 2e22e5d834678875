"""GeneralisationGap where labels and predictions were saved, or the labels of boosted trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

Answer = Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]
RANDOM = np.random.default_rng(0)


def right(share: float, num_classes: int = 4) -> Answer:
    """Return answers of which a share is right, and the others are dealt out anew."""

    def answers(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        is_known = RANDOM.uniform(size=len(labels)) < share
        return np.where(is_known, labels, RANDOM.integers(0, num_classes, len(labels)))

    return answers


def of_answers(
    training: Answer,
    validation: Answer,
    *,
    rows: int = 500,
    passes: int = 4,
    length: int = 60,
    has_losses: bool = False,
) -> TrialBuilder:
    """Return a run that saves every fifth step and, by default, the loss of training only."""
    trial = TrialBuilder()
    step = 0
    for number in range(passes):
        for mode, mode_steps in (
            (ModeKeys.TRAIN, range(number * length, (number + 1) * length, 5)),
            (ModeKeys.EVAL, range(number, number + 1)),
        ):
            for mode_step in mode_steps:
                is_training = mode is ModeKeys.TRAIN
                labels = RANDOM.integers(0, 4, 40 if is_training else rows)
                tensors = {
                    "labels": labels,
                    "predictions": (training if is_training else validation)(labels),
                }
                if is_training or has_losses:
                    tensors["Loss_output_0"] = np.float64(1.0)
                trial.step(step, tensors, mode=mode, mode_step=mode_step)
                step += 1
    return trial


def one_answer(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.zeros_like(labels)


@pytest.mark.parametrize(
    ("training", "validation", "is_found"),
    [
        (right(0.3), right(0.0), True),
        (right(0.3), right(0.3), False),
        (right(0.3), right(0.25), False),  # little, but it is no chance
        (right(0.0), right(0.0), False),  # nothing is learned at all, or not yet
        (right(0.3), one_answer, False),  # an answer for all rows is another thing
        (one_answer, one_answer, False),
    ],
)
def test_answers_that_are_learned_by_heart(
    training: Answer, validation: Answer, *, is_found: bool
) -> None:
    trial = of_answers(training, validation, has_losses=True)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_chance_takes_rows_passes_and_steps_to_tell() -> None:
    heart = right(0.4), right(0.0)
    assert not found_at(GeneralisationGap(), of_answers(*heart, rows=30))
    assert not found_at(GeneralisationGap(), of_answers(*heart, passes=2))
    assert not found_at(GeneralisationGap(), of_answers(*heart, length=25))


@pytest.mark.parametrize(
    ("training", "validation", "has_losses", "is_found"),
    [
        (1.0, 0.5, False, True),
        (1.0, 0.5, True, False),  # losses tell more
        (1.0, 0.8, False, False),
        (0.8, 0.4, False, False),
    ],
)
def test_training_is_right_and_validation_is_not(
    training: float, validation: float, *, has_losses: bool, is_found: bool
) -> None:
    trial = of_answers(right(training), right(validation), has_losses=has_losses)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_predictions_that_are_no_classes_are_left_alone() -> None:
    trial = of_answers(right(0.4), lambda labels: labels + RANDOM.normal(size=len(labels)))
    assert not found_at(GeneralisationGap(), trial)


def of_rounds(
    metric: str, labels: object, constant: float, course: Callable[[float], float]
) -> TrialBuilder:
    """Return 40 rounds that fall by a tenth in training, and take a course in validation."""
    trial = TrialBuilder()
    trial.collections(losses=(f"-{metric}$",), labels=("^labels$",))
    for step in range(0, 40, 2):
        losses = {
            f"train-{metric}": constant * (1 - 0.1 * step / 40),
            f"validation-{metric}": constant * course(step / 40),
        }
        values = {name: np.float64(loss) for name, loss in losses.items()}
        trial.step(step, {"labels": labels, **values}, mode=ModeKeys.GLOBAL)
    return trial


def dips(share: float) -> float:
    """Fall below what one answer gives by chance, and rise: it is not learned by heart as such."""
    return 1.0 - 0.008 * math.sin(math.pi * min(2 * share, 1.0)) + 0.02 * max(share - 0.5, 0.0)


NUMBERS = np.random.default_rng(1).normal(size=400)
CLASSES = np.arange(400) % 5
EVENLY = np.log(5)


@pytest.mark.parametrize(
    ("metric", "labels", "constant", "course", "is_found"),
    [
        ("rmse", NUMBERS, float(NUMBERS.std()), dips, True),
        ("rmse", np.append(NUMBERS, 99.0), float(NUMBERS.std()), dips, False),  # one outlier
        ("rmse", NUMBERS, 0.97 * float(NUMBERS.std()), dips, False),  # a little is learned
        ("rmse", NUMBERS, 2.0 * float(NUMBERS.std()), lambda share: 1 - 0.1 * share, False),
        ("mlogloss", CLASSES, EVENLY, dips, True),
        ("mlogloss", CLASSES // 4, EVENLY, dips, False),  # one class has nearly all
        ("logloss", CLASSES % 2, 0.673, dips, True),
        ("logloss", CLASSES // 4, 0.7, dips, False),
        ("logloss", NUMBERS, 0.7, dips, False),
        ("logloss", CLASSES[:30] % 2, 0.7, dips, False),
        ("logloss", np.full(400, np.nan), 0.7, dips, False),
    ],
)
def test_trees_that_are_never_better_than_one_answer(
    metric: str,
    labels: object,
    constant: float,
    course: Callable[[float], float],
    *,
    is_found: bool,
) -> None:
    trial = of_rounds(metric, labels, constant, course)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(("share", "is_found"), [(0.0, True), (0.3, False)])
def test_answers_of_trees_that_have_nothing_to_do_with_labels(
    share: float, *, is_found: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-merror$",), labels=("^labels$",))
    for step in range(30):
        error = {"train-merror": np.float64(0.5), "validation-merror": np.float64(0.5)}
        answers = {"labels": CLASSES, "predictions": right(share, 5)(CLASSES)}
        trial.step(step, {**answers, **error}, mode=ModeKeys.GLOBAL)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(("is_far", "is_found"), [(True, False), (False, True)])
def test_an_outlier_among_targets_is_no_gap(*, is_far: bool, is_found: bool) -> None:
    targets = np.append(np.sin(np.arange(400.0)), 15.0 if is_far else 0.0)
    trial = TrialBuilder()
    for step in range(40):
        mode = ModeKeys.EVAL if step % 10 == 9 else ModeKeys.TRAIN
        loss = 1.0 if step < 5 else 0.9 if mode is ModeKeys.EVAL else 0.2
        tensors = {
            "MSELoss_input_0": 0.5 * targets,
            "MSELoss_input_1": targets,
            "MSELoss_output_0": np.float64(loss),
        }
        trial.step(step, tensors, mode=mode, mode_step=step)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("positive", "start", "is_found"),
    [(0.5, 0.7, True), (0.2, 0.7, False), (0.5, 1.2, False)],
)
def test_yes_and_no_that_are_even(positive: float, start: float, *, is_found: bool) -> None:
    targets = (np.arange(200) < 200 * positive).astype(float)
    trial = TrialBuilder()
    for step in range(48):
        mode = ModeKeys.EVAL if step % 12 == 11 else ModeKeys.TRAIN
        loss = start if step < 6 else 0.7 if mode is ModeKeys.EVAL else 0.69
        tensors = {
            "BCEWithLogitsLoss_input_0": np.sin(np.arange(200.0)),
            "BCEWithLogitsLoss_input_1": targets,
            "BCEWithLogitsLoss_output_0": np.float64(loss),
        }
        trial.step(step, tensors, mode=mode, mode_step=5 * step)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found
