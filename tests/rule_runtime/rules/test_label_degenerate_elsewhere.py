"""Labels of training beside those of validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

EVAL, TRAIN = ModeKeys.EVAL, ModeKeys.TRAIN


@pytest.mark.parametrize(
    ("elsewhere", "first"),
    [
        (np.arange(100) % 15 < 1, 19),  # 7 % are of the other class
        (np.arange(100) % 50 < 1, 78),  # 2 % are
        (np.arange(31) % 2 < 1, 78),  # too few rows to tell
        (np.arange(36) < 1, 78),  # one row may be an accident
        (np.arange(36) < 2, 19),
        (np.zeros(9000), 78),
    ],
)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_class_that_other_modes_have_is_not_rare(
    elsewhere: np.ndarray[Any, Any], first: int, value: float
) -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    labels = elsewhere if not value or elsewhere.max() > 1 else 1.0 - elsewhere
    trial.step(0, {"labels": labels * 1.0}, mode=ModeKeys.EVAL)
    for step in range(1, 81):
        trial.step(step, {"labels": np.full(64, value)})
    assert found_at(LabelDegenerate(), trial)[0] == 1 + first


def test_labels_of_other_modes_are_counted_together() -> None:
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step in range(4):
        mode = ModeKeys.EVAL if step % 2 else ModeKeys.PREDICT
        trial.step(step, {"labels": np.arange(20) % 2}, mode=mode)
    for step in range(4, 24):
        trial.step(step, {"labels": np.zeros(64, int)})
    assert found_at(LabelDegenerate(), trial) == [23]


@pytest.mark.parametrize("is_constant_elsewhere", [True, False])
def test_a_loss_of_smoothed_labels_never_comes_near_to_zero(*, is_constant_elsewhere: bool) -> None:
    trial = TrialBuilder()
    for step in range(40):
        is_validation = step % 10 == 9
        varies = is_validation and not is_constant_elsewhere
        tensors: dict[str, Any] = {"CrossEntropyLoss_output_0": np.float64(0.5 if step else 2.3)}
        tensors["CrossEntropyLoss_input_0"] = np.ones((64, 10))
        tensors["CrossEntropyLoss_input_1"] = np.arange(64) % 10 if varies else np.full(64, 3)
        trial.step(step, tensors, mode=ModeKeys.EVAL if is_validation else ModeKeys.TRAIN)
    assert bool(found_at(LabelDegenerate(), trial)) is not is_constant_elsewhere


def judged(*steps: tuple[ModeKeys, Any, Any], loss: str = "CrossEntropyLoss") -> bool:
    """Tell whether it fires; each step is (mode, scores, targets), and the loss stays high."""
    trial = TrialBuilder()
    trial.collections(losses=("Loss_output_0$",))
    for step, (mode, scores, targets) in enumerate(steps):
        tensors = {f"{loss}_input_0": scores, f"{loss}_input_1": targets}
        trial.step(step, {**tensors, f"{loss}_output_0": np.float64(2.0)}, mode=mode)
    return bool(found_at(LabelDegenerate(), trial))


@pytest.mark.parametrize(
    ("columns", "dtype", "fires"),
    [(10, int, True), (257, int, False), (10, float, False)],
    ids=["the same task", "MoCo, and a probe", "targets of another kind"],
)
def test_labels_of_another_task_are_no_evidence(columns: int, dtype: type, *, fires: bool) -> None:
    validation = (EVAL, np.ones((64, 10)), np.arange(64) % 10)
    training: Any = (TRAIN, np.ones((64, columns)), np.zeros(64, dtype))
    assert judged(validation, *[training] * 40) is fires


def masks(num_rows: int, num_others: int, *, size: int = 32) -> tuple[Any, Any]:
    """Return scores and targets of images; some have an object that covers half of them."""
    targets = np.zeros((num_rows, 1, size, size), np.float32)
    targets[:num_others, :, : size // 2] = 1
    return np.ones_like(targets), targets


@pytest.mark.parametrize(
    ("validation", "fires"),
    [
        (masks(1, 1), False),
        (masks(8, 1), False),  # it is one image, although 1 in 16 of all pixels
        (masks(36, 2), False),  # 1 in 36 of all pixels
        (masks(36, 8), True),
        (masks(36, 8, size=64), False),  # whole images, where training has parts of them
    ],
)
def test_pixels_of_an_image_are_one_row(validation: tuple[Any, Any], *, fires: bool) -> None:
    steps = [(EVAL, *validation), *[(TRAIN, *masks(6, 0))] * 20]
    assert judged(*steps * 5, loss="BCEWithLogitsLoss") is fires


def test_the_same_rows_in_each_validation_count_once() -> None:
    """Else 904 rows, seven times, and 1,216 in training would be as good as 5,000."""
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    for step in range(26):
        is_validation = step % 4 == 0
        mode = EVAL if is_validation else TRAIN
        trial.step(step, {"labels": np.zeros(904 if is_validation else 64, int)}, mode=mode)
    assert not found_at(LabelDegenerate(patience=1), trial)


def test_a_few_among_large_numbers_are_few() -> None:
    """Seconds since 1970, of which one in 333 is another one: no 5 % differ."""
    trial = TrialBuilder()
    trial.collections(labels=("^labels$",))
    others = np.where(np.arange(333) < 1, 1.7e9 + 1, 1.7e9)
    trial.step(0, {"labels": others}, mode=EVAL)
    for step in range(1, 21):
        trial.step(step, {"labels": np.full(20, 1.7e9)})
    assert not found_at(LabelDegenerate(), trial)
