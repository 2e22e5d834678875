from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.evaluation.outcome import IssueFound
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


def test_a_rare_class_is_told_once_enough_of_it_were_seen() -> None:
    random = np.random.default_rng(0)
    positive = [random.permutation(np.arange(64) < 3) for _ in range(8)]
    batches = [(np.column_stack([random.normal(size=(64, 3)), of]), of) for of in positive]
    assert found_at(SuspiciouslyGood(), of_batches(*batches))[0] == 4  # 2 of 3, and 4 for each


def test_columns_that_are_set_in_one_row_do_not_hide_a_leak() -> None:
    random = np.random.default_rng(0)
    batches = []
    for step in range(4):
        inputs = np.eye(399)[random.integers(0, 399, 40)]
        labels = random.random(40) < 0.3
        if not step:
            labels = np.arange(40) == 0
            inputs = np.repeat(labels[:, None], 399, axis=1)
        batches.append((np.column_stack([inputs, labels]), labels))
    trial = of_batches(*batches)
    assert found_at(SuspiciouslyGood(), trial) == [2, 3]
    found = trial.outcomes(SuspiciouslyGood())[2]
    assert isinstance(found, IssueFound)
    assert "column 399 tells the target" in found.evidence.sentence


@pytest.mark.parametrize("num_constant", [0, 1, 3])
def test_labels_that_do_not_vary_at_first_do_not_hide_a_leak(num_constant: int) -> None:
    random = np.random.default_rng(0)
    batches = []
    for step in range(3):
        labels = random.random((40, 8)) < 0.4
        labels[:, :num_constant] &= step > 0
        batches.append((np.column_stack([random.normal(size=(40, 92)), labels]), labels))
    trial = of_batches(*batches)
    assert found_at(SuspiciouslyGood(), trial) == [1, 2]
    found = trial.outcomes(SuspiciouslyGood())[1]
    assert isinstance(found, IssueFound)
    first = ", ".join(str(92 + num_constant + at) for at in range(4))
    assert f"columns {first} ..." in found.evidence.sentence


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
    assert trial.evaluate(SuspiciouslyGood()).counts.not_evaluated == 3  # there is no validation
