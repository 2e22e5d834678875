from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
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


@pytest.mark.parametrize("vocabulary", [np.arange(40), np.arange(40)[::-1] * 1.0])
def test_words_are_names_and_no_numbers(vocabulary: np.ndarray) -> None:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(8):
        labels = random.integers(0, 2, 64)
        words = random.integers(0, 12, (64, 12))
        words[:, 6] = 20 + 10 * labels + random.integers(0, 10, 64)  # 10 good ones, then 10 bad
        batches.append((vocabulary[words], labels))
    is_found = bool(found_at(SuspiciouslyGood(), of_batches(*batches)))
    assert is_found is (vocabulary.dtype.kind == "f")


def test_a_rare_class_is_told_once_enough_of_it_were_seen() -> None:
    random = np.random.default_rng(0)
    positive = [random.permutation(np.arange(64) < 3) for _ in range(24)]
    batches = [(np.column_stack([random.normal(size=(64, 3)), of]), of) for of in positive]
    # The class changes up to 6 times a batch; 100 changes show that classes are predicted.
    assert found_at(SuspiciouslyGood(), of_batches(*batches))[0] == 16


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
    found = trial.outcomes(SuspiciouslyGood())[at]
    assert isinstance(found, IssueFound)
    assert "column 399 predicts the target" in found.evidence.sentence


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


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_number_that_is_missing_does_not_hide_a_leak(value: float) -> None:
    random = np.random.default_rng(0)
    targets = random.lognormal(0, 1, (4, 16))
    columns = np.log(targets)
    columns[0, 3] = value
    batches = [
        (np.column_stack([random.normal(size=(16, 4)), one]), of)
        for one, of in zip(columns, targets, strict=True)
    ]
    assert found_at(SuspiciouslyGood(), of_batches(*batches)) == [3]


@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize("batch", [16, 64, 256])
def test_how_long_engines_run_on_is_not_told_by_how_long_they_ran(
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
    assert trial.evaluate(SuspiciouslyGood()).counts.evaluated == 2


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


@pytest.mark.parametrize("at", [0, 3])
def test_a_batch_with_few_rows_of_a_class_refutes_nothing(at: int) -> None:
    random = np.random.default_rng(0)
    batches = []
    for step in range(12):
        labels = random.permutation(np.arange(32) < (7 if step == at else 12)) * 1.0
        message = labels + random.normal(0, 0.01, 32)
        batches.append((np.column_stack([random.normal(size=(32, 9)), message]), labels))
    assert found_at(SuspiciouslyGood(), of_batches(*batches))


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


def test_columns_that_tell_only_together() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 5, (2, 256))
    batches = [
        (np.column_stack([random.normal(size=(256, 3)), np.eye(5)[of]]), of) for of in classes
    ]
    trial = of_batches(*batches)
    found = trial.outcomes(SuspiciouslyGood())[0]
    assert isinstance(found, IssueFound)
    assert "columns 3, 4, 5, 6 ... predict the target Loss_input_1" in found.evidence.sentence


def of_two_classes(
    column: Callable[[np.ndarray, np.random.Generator], np.ndarray], *, seed: int = 0
) -> TrialBuilder:
    """Return a training on 9 columns of noise, of two classes and one that is made from these."""
    random = np.random.default_rng(seed)
    batches = []
    for _ in range(6):
        labels = random.random(64) < 0.4
        batches.append(
            (np.column_stack([random.normal(size=(64, 9)), column(labels, random)]), labels)
        )
    return of_batches(*batches)


def amount(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a number [B] that the classes were made from by a limit."""
    return np.where(labels, 1, -1) * np.abs(random.normal(size=len(labels)))


def only_in_one(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return 0 in one class and some other number in the other [B]."""
    return labels * np.abs(random.normal(size=len(labels)))


@pytest.mark.parametrize("column", [amount, only_in_one])
def test_a_column_that_parts_two_classes_without_a_gap(
    column: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> None:
    trial = of_two_classes(column)
    at = found_at(SuspiciouslyGood(), trial)
    assert at == [3, 4, 5]  # of two classes it takes four times 50 rows
    found = trial.outcomes(SuspiciouslyGood())[3]
    assert isinstance(found, IssueFound)
    assert "column 9 predicts the target" in found.evidence.sentence


@pytest.mark.parametrize("column", [amount, only_in_one])
def test_a_column_that_parts_two_classes_but_for_one_row_is_no_leak(
    column: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> None:
    def nearly(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        labels = labels.copy()
        labels[5] ^= random.random() < 0.5
        return column(labels, random)

    for seed in range(10):
        assert not found_at(SuspiciouslyGood(), of_two_classes(nearly, seed=seed))


def test_batches_that_are_scaled_each_by_itself_do_not_share_a_limit() -> None:
    def scaled(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return amount(labels, random) + random.normal()

    assert not found_at(SuspiciouslyGood(), of_two_classes(scaled))
