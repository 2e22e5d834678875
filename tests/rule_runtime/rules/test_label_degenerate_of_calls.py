"""Targets that are the same on purpose: in one call of a loss among several, or in every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

EVAL, TRAIN = ModeKeys.EVAL, ModeKeys.TRAIN
ONES = np.ones((32, 1), np.float32)
SLOPE = np.linspace(-1, 0, 128, dtype=np.float32)[:, None]
CENTRE = np.tile(np.array([2, -1, 0.5], np.float32), (64, 1))


def calls(*targets: Any, loss: str = "MSELoss", value: float = 1.0) -> dict[str, Any]:
    """Return what one loss compares in several calls of a step."""
    tensors: dict[str, Any] = {}
    for at, of_call in enumerate(targets):
        tensors[f"{loss}_input_{2 * at}"] = np.zeros_like(of_call)
        tensors[f"{loss}_input_{2 * at + 1}"] = of_call
        tensors[f"{loss}_output_{at}"] = np.float32(value)
    return tensors


def found(training: Sequence[Any], validation: Any = None, *, loss: str = "MSELoss") -> list[int]:
    """Return where the rule fires, in 60 steps of training with a loss that falls."""
    trial = TrialBuilder()
    trial.collections(losses=("_output_[0-9]+$",))
    for step in range(60):
        if validation is not None and step % 10 == 9:
            tensors = calls(validation, loss=loss)
            trial.step(step, tensors, mode=EVAL, mode_step=step)
        else:
            tensors = calls(*training, loss=loss, value=1 / (1 + step))
            trial.step(step, tensors, mode=TRAIN, mode_step=step)
    return found_at(LabelDegenerate(), trial)


@pytest.mark.parametrize("start", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("validation", [None, np.exp(SLOPE)])
def test_of_a_loss_that_is_called_again_in_a_step_all_calls_count(
    start: float, validation: Any
) -> None:
    """As of an equation: where it begins in one call, and what it says in the other."""
    assert not found([start * ONES, SLOPE], validation)
    assert not found([start * ONES, 0 * ONES], validation)


def test_a_step_of_several_small_batches_of_one_label_is_found_sooner() -> None:
    labels = np.full(8, 3)
    one, four = (found([labels] * n, loss="CrossEntropyLoss") for n in (1, 4))
    assert not one  # 480 rows
    assert four == list(range(19, 60))
    assert not found([labels, labels, labels, labels + 1], loss="CrossEntropyLoss")


def test_a_loss_that_returns_several_numbers_is_called_once() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("_output_[0-9]+$",))
    for step in range(60):
        tensors = calls(np.full(64, 3), loss="MixedLoss", value=1 / (1 + step))
        trial.step(step, {**tensors, "MixedLoss_output_1": np.float32(0.5)})
    assert found_at(LabelDegenerate(), trial)


@pytest.mark.parametrize(
    ("validation", "fires"),
    [(None, False), (CENTRE[:40], False), (np.linspace(-3, 3, 99).reshape(33, 3), True)],
)
def test_equal_rows_of_real_numbers_may_be_a_centre_unless_validation_has_others(
    validation: Any, *, fires: bool
) -> None:
    assert bool(found([CENTRE], validation)) is fires


def test_equal_rows_of_one_call_need_not_be_those_of_the_others() -> None:
    validation = np.linspace(-3, 3, 99).reshape(33, 3)
    assert found([CENTRE, CENTRE[:5]], validation)
    for other in (CENTRE + 1, CENTRE[:, :2], CENTRE[0], np.float32(2)):
        assert not found([CENTRE, other], validation)
