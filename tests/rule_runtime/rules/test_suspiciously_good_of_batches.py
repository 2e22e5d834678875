from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import evidence_of
from tests.rule_runtime.rules.runs import found_at


def of_batches(*batches: tuple[np.ndarray, np.ndarray], loss: str = "Loss") -> TrialBuilder:
    """Return a training whose model is given inputs and targets, a pair for each step."""
    trial = TrialBuilder()
    for step, (inputs, targets) in enumerate(batches):
        tensors = {"Net_layer.weight": np.ones((4, 4)), f"{loss}_output_0": np.float64(1.0)}
        tensors |= {"Net_input_0": inputs, f"{loss}_input_1": targets}
        trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=step)
    trial.collections(weights=("weight$",), losses=("Loss_output_0$",))
    return trial


def test_a_word_of_the_only_positive_row_is_no_leak() -> None:
    random = np.random.default_rng(0)
    often = 3 / (np.arange(3000) + 3)
    for _ in range(5):
        batches = [
            (random.poisson(often, (64, 3000)), random.permutation(np.arange(64) < 1 + step % 2))
            for step in range(8)
        ]
        assert not found_at(SuspiciouslyGood(), of_batches(*batches))


def test_columns_that_are_set_in_one_row_do_not_hide_a_leak() -> None:
    random = np.random.default_rng(0)
    batches = []
    for step in range(8):
        inputs = np.eye(399)[random.integers(0, 399, 40)]
        labels = random.random(40) < 0.3
        if not step:
            labels = np.arange(40) == 0
            inputs = np.repeat(labels[:, None], 399, axis=1)
        batches.append((np.column_stack([inputs, labels]), labels))
    trial = of_batches(*batches)
    at = found_at(SuspiciouslyGood(), trial)[0]
    assert at == 7  # of two classes it takes four times 50
    evidence = evidence_of(trial.outcomes(SuspiciouslyGood())[at])
    assert "column 399 predicts the target" in evidence.sentence


@pytest.mark.parametrize("batch", [12, 16])
def test_a_column_of_one_class_and_others_by_chance(batch: int) -> None:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(8):
        classes = random.integers(0, 3, batch)
        columns = random.random((batch, 20_000)) < 0.33
        columns[:, 7] = classes == 1
        batches.append((columns, classes))
    assert not found_at(SuspiciouslyGood(), of_batches(*batches))


@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize("batch", [16, 64, 256])
def test_how_long_engines_last_does_not_follow_from_how_long_they_ran(
    batch: int, *, is_shuffled: bool
) -> None:
    random = np.random.default_rng(0)
    ran = [np.arange(life) for life in random.integers(150, 350, 30)]
    left = np.concatenate([one[::-1] for one in ran])
    rows = np.column_stack([np.concatenate(ran), random.normal(size=(len(left), 5))])
    if is_shuffled:
        order = random.permutation(len(left))
        left, rows = left[order], rows[order]
    parts = range(batch, len(left), batch)
    pairs = zip(np.split(rows, parts), np.split(1.0 * left, parts), strict=True)
    assert not found_at(SuspiciouslyGood(), of_batches(*pairs))


def test_a_batch_without_rows_is_no_error() -> None:
    text = np.random.default_rng(0).integers(0, 9, (8, 6))
    batches = [(text[:rows, :-1], text[:rows, 1:]) for rows in (8, 0, 8)]
    trial = of_batches(*batches, loss="CrossEntropyLoss")
    assert trial.evaluate(SuspiciouslyGood()).counts.evaluated == 1  # two batches decide


@pytest.mark.parametrize("form", ["flat", "set", "image"])
@pytest.mark.parametrize("batch", [32, 64, 128])
def test_an_element_of_an_image_that_parts_two_digits_is_no_leak(batch: int, form: str) -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits(n_class=2)
    images = (digits.data > 7) * 1.0 if form == "set" else digits.data / 16
    images = images.reshape(-1, 1, 8, 8) if form == "image" else images
    random = np.random.default_rng(0)
    for _ in range(10):
        parts = [random.choice(len(images), batch, replace=False) for _ in range(4)]
        pairs = [(images[rows], digits.target[rows]) for rows in parts]
        assert not found_at(SuspiciouslyGood(), of_batches(*pairs))


@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize(("share", "is_found"), [(1.0, True), (0.97, False), (0.95, False)])
def test_a_feature_that_is_nearly_always_right(
    share: float, num_classes: int, *, is_found: bool
) -> None:
    random = np.random.default_rng(0)
    for _ in range(10):
        batches = []
        for _ in range(4):
            labels = random.integers(0, num_classes, 64)
            column = np.where(random.random(64) < share, labels, num_classes - 1 - labels)
            batches.append((np.column_stack([random.normal(size=(64, 9)), column]), labels))
        assert bool(found_at(SuspiciouslyGood(), of_batches(*batches))) is is_found


@pytest.mark.parametrize("num_sets", [1, 2])
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_the_same_few_rows_again_show_nothing(num_sets: int, *, is_shuffled: bool) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(12) % 3
    sets = [(random.random((12, 300)) < 0.3, labels) for _ in range(num_sets)]
    for inputs, _ in sets:
        inputs[:, 7] = labels == 1
        inputs[:, 8] = labels == 2
    batches = []
    for step in range(24):
        inputs, targets = sets[step % num_sets]
        rows = random.permutation(12) if is_shuffled else np.r_[0:12]
        batches.append((inputs[rows], targets[rows]))
    assert not found_at(SuspiciouslyGood(), of_batches(*batches))
    new = [(np.column_stack([inputs, random.normal(size=12)]), of) for inputs, of in batches]
    assert found_at(SuspiciouslyGood(), of_batches(*new))


@pytest.mark.parametrize(("num_classes", "batch"), [(10, 16), (20, 32)])
@pytest.mark.parametrize("is_one_hot", [False, True])
def test_many_classes_in_small_batches(num_classes: int, batch: int, *, is_one_hot: bool) -> None:
    random = np.random.default_rng(0)
    batches = []
    for rows in (14, *[batch] * 30):
        classes = random.integers(0, num_classes, rows)
        message = np.eye(num_classes)[classes] if is_one_hot else classes / num_classes
        batches.append((np.column_stack([random.normal(size=(rows, 20)), message]), classes))
    assert found_at(SuspiciouslyGood(), of_batches(*batches, loss="CrossEntropyLoss"))


def test_columns_that_mark_classes_only_together() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 5, (2, 256))
    batches = [
        (np.column_stack([random.normal(size=(256, 3)), np.eye(5)[of]]), of) for of in classes
    ]
    trial = of_batches(*batches)
    evidence = evidence_of(trial.outcomes(SuspiciouslyGood())[0])
    assert "columns 3, 4, 5, 6, 7 predict the target Loss_input_1" in evidence.sentence


def table_of(leak: Callable[[Any, Any, Any], Any], *, num_classes: int = 0) -> TrialBuilder:
    """Return a run on 8 columns of noise and those that `leak` makes of targets and noise."""
    random = np.random.default_rng(0)
    batches = []
    for _ in range(6):
        noise = random.normal(size=(48, 8))
        numbers = np.sin(noise[:, 0]) + noise[:, 1] * noise[:, 2] + random.normal(size=48)
        targets = random.integers(0, num_classes, 48) if num_classes else numbers
        batches.append((np.column_stack([noise, leak(targets, noise, random)]), targets))
    return of_batches(*batches, loss="CrossEntropyLoss" if num_classes else "Loss")


@pytest.mark.parametrize(("size", "is_found"), [(0.01, True), (0.2, False)])
def test_the_target_with_noise(size: float, *, is_found: bool) -> None:
    trial = table_of(lambda of, _, random: of + size * random.normal(size=48))
    assert bool(found_at(SuspiciouslyGood(), trial)) is is_found


@pytest.mark.parametrize(
    "leak",
    [
        lambda of, _, random: np.stack([part := random.normal(size=48), of - part], 1),
        lambda of, _, random: np.stack([part := 3 * random.normal(size=48), 2 * of + part], 1),
        lambda of, noise, _: of - noise[:, 0],
    ],
)
def test_columns_whose_sum_or_difference_is_the_target(leak: Any) -> None:
    assert found_at(SuspiciouslyGood(), table_of(leak))


@pytest.mark.parametrize(
    "leak",
    [
        lambda of, _, random: of + 0.1 * random.normal(size=48),  # an easy task
        lambda of, _, random: 12 * np.eye(4)[of] + random.normal(size=(48, 4)),
        lambda of, _, random: of + random.random(48),  # classes are bins of a quantity
    ],
)
def test_classes_that_lie_apart_are_no_leak(leak: Any) -> None:
    assert not found_at(SuspiciouslyGood(), table_of(leak, num_classes=4))


def test_a_sum_of_most_columns_is_a_task() -> None:
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(48, 6)) for _ in range(6)]
    for num_parts, is_found in ((3, True), (4, False)):
        batches = [(columns, columns[:, :num_parts].sum(1)) for columns in inputs]
        assert bool(found_at(SuspiciouslyGood(), of_batches(*batches))) is is_found


def test_the_next_value_of_a_wave_follows_from_all_others() -> None:
    random = np.random.default_rng(0)
    for noise in (0.0, 1e-2):
        phases = random.uniform(0, 6, (6, 48, 1))
        waves = np.sin(phases + 0.1 * np.arange(9)) + noise * random.normal(size=(6, 48, 9))
        trial = of_batches(*[(wave[:, :8], wave[:, 8]) for wave in waves])
        assert not found_at(SuspiciouslyGood(), trial)


@pytest.mark.parametrize("num_marked", [48, 40])
def test_a_bright_pixel_at_the_place_of_the_class(num_marked: int) -> None:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(6):
        classes = random.integers(0, 5, 48)
        images = random.integers(0, 17, (48, 36)) / 16
        images[np.arange(num_marked), classes[:num_marked]] = 3.0
        batches.append((images.reshape(48, 1, 6, 6), classes))
    trial = of_batches(*batches, loss="CrossEntropyLoss")
    assert bool(found_at(SuspiciouslyGood(), trial)) is (num_marked == 48)


def test_pictures_in_black_and_white_have_no_marks() -> None:
    random = np.random.default_rng(0)
    batches = [(random.integers(0, 2, (64, 36)) * 1.0, random.integers(0, 5, 64)) for _ in "123456"]
    assert not found_at(SuspiciouslyGood(), of_batches(*batches, loss="CrossEntropyLoss"))
