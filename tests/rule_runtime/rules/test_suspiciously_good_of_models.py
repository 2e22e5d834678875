from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

RANDOM = np.random.default_rng(0)
CLASSES = RANDOM.integers(0, 10, 256)
ONE_HOT = np.eye(10)[CLASSES]
NOISE = RANDOM.normal(size=(256, 20))


def trained(tensors: dict[str, np.ndarray], targets: np.ndarray = CLASSES) -> TrialBuilder:
    """Return a step of models that are given these tensors, and of a loss of classes."""
    trial = TrialBuilder()
    trial.collections(weights=("weight$",), losses=("Loss_output_0$",))
    weights = {f"{name.partition('_')[0]}_w.weight": np.ones((2, 2)) for name in tensors}
    of_loss = {"CrossEntropyLoss_output_0": 1.0, "CrossEntropyLoss_input_1": targets}
    trial.step(0, weights | of_loss | tensors, mode=ModeKeys.TRAIN)
    return trial


@pytest.mark.parametrize("targets", [CLASSES, ONE_HOT, CLASSES[:, None]])
def test_a_model_that_is_given_labels_to_compute_its_loss(targets: np.ndarray) -> None:
    given = {"Net_input_0": NOISE, "Net_input_1": ONE_HOT}
    assert not found_at(SuspiciouslyGood(), trained(given, targets))
    given["Net_input_1"] = np.column_stack([ONE_HOT, NOISE[:, 0]])
    assert found_at(SuspiciouslyGood(), trained(given, targets))


@pytest.mark.parametrize(
    ("outputs", "compared", "is_found"),
    [
        (20, 10, False),  # a generator, another model predicts what it was given
        (10, 10, True),
        (None, 10, True),
        (20, None, True),
    ],
)
def test_a_model_whose_output_is_not_what_is_compared(
    outputs: int | None, compared: int | None, *, is_found: bool
) -> None:
    given = {"Net_input_0": np.column_stack([NOISE, ONE_HOT])}
    if outputs is not None:
        given["Net_output_0"] = RANDOM.normal(size=(256, outputs))
    if compared is not None:
        given["CrossEntropyLoss_input_0"] = RANDOM.normal(size=(256, compared))
    assert bool(found_at(SuspiciouslyGood(), trained(given))) is is_found


def series_of(*, has_leak: bool, num_columns: int = 2, num_targets: int = 0) -> TrialBuilder:
    """Return a step of a model of series, of which the first 10 times have no targets."""
    random = np.random.default_rng(0)
    does = random.normal(size=(64, 40, max(num_targets, 1))).cumsum(1)
    drives = random.normal(size=(64, 40, num_columns - has_leak * does.shape[2]))
    inputs = np.concatenate([drives, does], 2) if has_leak else drives
    targets = does[:, 10:] if num_targets else does[:, 10:, 0]
    trial = TrialBuilder()
    trial.collections(weights=("weight$",), losses=("Loss_output_0$",))
    tensors = {"Model_cell.weight": np.ones((2, 2)), "MSELoss_output_0": np.float64(1.0)}
    tensors |= {"cell_input_0": inputs[:, 0]}  # of one time
    trial.step(0, tensors | {"Model_input_0": inputs, "MSELoss_input_1": targets})
    return trial


def test_a_column_that_is_the_target_at_the_same_time() -> None:
    assert found_at(SuspiciouslyGood(), series_of(has_leak=True))
    assert not found_at(SuspiciouslyGood(), series_of(has_leak=False))


@pytest.mark.parametrize(("share", "is_found"), [(1.0, True), (0.97, False)])
def test_a_sensor_that_is_right_in_most_episodes(share: float, *, is_found: bool) -> None:
    random = np.random.default_rng(1)
    for _ in range(5):
        states = random.integers(0, 3, (240, 3))
        seen = np.where(random.random((240, 3)) < share, states, (states + 1) % 3)
        states, seen = (of.repeat(20, 1) for of in (states, seen))
        inputs = np.concatenate([random.normal(size=(240, 60, 2)), np.eye(3)[seen]], 2)
        trial = TrialBuilder()
        trial.collections(weights=("weight$",), losses=("Loss_output_0$",))
        for step in range(6):
            rows = slice(40 * step, 40 * step + 40)
            tensors = {"Tagger_cell.weight": np.ones((2, 2)), "FocalLoss_output_0": np.float64(1)}
            tensors |= {"Tagger_input_0": inputs[rows], "FocalLoss_input_1": states[rows]}
            trial.step(step, tensors, mode=ModeKeys.TRAIN)
        assert bool(found_at(SuspiciouslyGood(), trial)) is is_found


def test_what_is_rebuilt_at_each_time_is_no_leak() -> None:
    assert not found_at(SuspiciouslyGood(), series_of(has_leak=True, num_columns=1))
    rebuilt = series_of(has_leak=True, num_columns=3, num_targets=3)
    assert not found_at(SuspiciouslyGood(), rebuilt)


@pytest.mark.parametrize("length", [20, 12])
def test_a_target_that_does_not_vary_in_time_is_one_of_the_series(length: int) -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 3, (32, 1))
    series = random.normal(size=(32, 20, 4))
    series[:, :, 3] = classes
    targets = np.repeat(classes[:, :, None], length, 1)  # 32 series show little, however long
    given = {"Net_input_0": series, "Net_output_0": targets}
    assert not found_at(SuspiciouslyGood(), trained(given, targets))


@pytest.mark.parametrize("has_leak", [True, False])
def test_a_channel_that_is_the_mask_of_a_picture(*, has_leak: bool) -> None:
    random = np.random.default_rng(0)
    masks = (random.random((200, 1, 10, 10)) < 0.4) * 1.0
    pictures = random.normal(size=(200, 1, 10, 10))
    other = masks if has_leak else random.normal(size=(200, 1, 10, 10))
    given = {"Net_input_0": np.concatenate([pictures, other], 1)}
    assert bool(found_at(SuspiciouslyGood(), trained(given, masks))) is has_leak
