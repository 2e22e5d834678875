"""What only the values of outputs and targets tell of a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.evaluation.outcome import IssueFound
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

RANDOM = np.random.default_rng(0)
STEPS = (0, 100, 200, 300)


def softmax(scores: Any, axis: int) -> Any:
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def run(name: str, outputs: Any, targets: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step in STEPS:
        tensors = {f"{name}_input_0": outputs(), f"{name}_input_1": targets()}
        trial.step(step, {**tensors, f"{name}_output_0": np.float64(1)}, mode_step=step)
    return trial


def scores(*shape: int) -> Any:
    return RANDOM.normal(0, 2, shape).astype(np.float32)


@pytest.mark.parametrize("name", ["NLLLoss", "KLDivLoss", "CrossEntropyLoss", "Loss"])
@pytest.mark.parametrize(
    ("shape", "axis", "is_found"),
    [
        ((32, 5), 1, False),
        ((32, 5), 0, True),
        ((8, 5, 6), 1, False),
        ((8, 5, 6), 2, True),
        ((8, 5, 6), 0, True),
        ((1, 5), 1, False),
        ((1, 5), 0, False),  # ones: of a single row nobody can tell
    ],
)
def test_a_softmax_over_another_axis_than_that_of_the_classes(
    name: str, shape: tuple[int, ...], axis: int, is_found: bool
) -> None:
    def outputs() -> Any:
        shares = softmax(scores(*shape), axis)
        return np.log(shares) if name in ("NLLLoss", "KLDivLoss") else shares

    trial = run(name, outputs, lambda: RANDOM.integers(0, 5, shape[0]))
    assert bool(found_at(LossInputMismatch(), trial)) is is_found
    outcome = trial.outcomes(LossInputMismatch())[-1]
    if is_found:
        assert isinstance(outcome, IssueFound)
        assert f"sum to 1 along dimension {axis}, and not along dimension 1" in (
            outcome.evidence.sentence
        )


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_balanced_both_ways_is_right_one_way(axis: int) -> None:
    balanced = np.full((4, 4), 0.25, np.float32)
    trial = run("CrossEntropyLoss", lambda: softmax(balanced, axis), lambda: np.arange(4))
    assert not found_at(LossInputMismatch(), trial)


def test_scores_are_no_probabilities() -> None:
    trial = run("CrossEntropyLoss", lambda: scores(32, 5), lambda: RANDOM.integers(0, 5, 32))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize(
    ("targets", "is_found"),
    [
        (lambda: RANDOM.integers(0, 10, 64).astype(np.float32), True),
        (lambda: RANDOM.integers(1, 11, 64).astype(np.float32), False),  # from 1 on
        (lambda: RANDOM.integers(0, 2, 64).astype(np.float32), False),  # yes and no
        (lambda: RANDOM.poisson(2, 64).astype(np.float32), False),  # some are frequent
        (lambda: RANDOM.normal(5, 2, 64).astype(np.float32), False),
    ],
)
@pytest.mark.parametrize("name", ["MSELoss", "SmoothL1Loss"])
def test_targets_that_are_numbers_of_classes_are_no_amounts(
    name: str, targets: Any, is_found: bool
) -> None:
    trial = run(name, lambda: scores(64), targets)
    for step in range(310, 360, 10):
        given = {f"{name}_input_0": scores(64), f"{name}_input_1": targets()}
        trial.step(step, {**given, f"{name}_output_0": np.float64(1)}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


@pytest.mark.parametrize("name", ["NLLLoss", "CrossEntropyLoss", "Loss"])
def test_empty_batches_are_passed_over(name: str) -> None:
    trial = run(name, lambda: np.zeros((0, 5), np.float32), lambda: np.zeros(0, np.int64))
    assert not found_at(LossInputMismatch(), trial)
