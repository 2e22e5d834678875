"""Validation of another kind than training: in other units, or harder from the beginning."""

from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import LOSS, found_at

TARGETS = np.random.default_rng(0).normal(0, 1, (64, 1))


@pytest.mark.parametrize(("scale", "is_found"), [(1.0, True), (4.0, True), (6.0, False)])
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss"])
def test_losses_in_other_units_are_not_compared(name: str, scale: float, is_found: bool) -> None:
    trial = TrialBuilder()
    for step in range(60):
        is_training = step % 10 < 5
        targets = TARGETS if is_training else scale * TARGETS
        loss = 1 / (1 + step) if is_training else scale
        trial.step(
            step,
            {
                f"{name}_output_0": np.float64(loss),
                f"{name}_input_0": -scale * TARGETS,
                f"{name}_input_1": targets,
            },
            mode=ModeKeys.TRAIN if is_training else ModeKeys.EVAL,
            mode_step=step,
        )
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("ahead", "training", "validation", "is_found"),
    [
        ([], 0.8, 2.79, False),  # 1.99 above training, as 2 at the first pass
        ([], 0.8, 2.81, True),
        ([], 0.2, 1.19, False),  # six times training, twice as far as at the first pass
        ([], 0.2, 1.21, True),
        ([1.05] * 5, 0.8, 2.79, False),  # hardly anything was learned by then
        ([1.2] * 5, 0.8, 2.79, True),  # something was, maybe by heart
    ],
)
def test_a_gap_that_was_there_before_anything_was_learned_must_grow(
    ahead: list[float], training: float, validation: float, *, is_found: bool
) -> None:
    trial = TrialBuilder()
    passes = [([*ahead, *[1.0] * 5], 3.0), *[([training] * 5, validation)] * 5]
    losses = [
        (mode, loss)
        for of_training, of_pass in passes
        for mode, each in ((ModeKeys.TRAIN, of_training), (ModeKeys.EVAL, [of_pass]))
        for loss in each
    ]
    for step, (mode, loss) in enumerate(losses):
        trial.step(step, {LOSS: np.float64(loss)}, mode=mode, mode_step=step)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("name", "validation", "wider", "apart", "is_found"),
    [
        ("MSELoss", 0.40, 1.0, 0.0, True),  # one answer gives 1, and training began at 26
        ("MSELoss", 0.40, 1.0, 0.3, True),
        ("MSELoss", 0.10, 1.0, 0.0, False),
        ("MSELoss", 0.40, 1.6, 0.0, False),  # training has more to learn
        ("MSELoss", 0.40, 1.0, 0.8, False),  # validation lies elsewhere, as of a later time
        ("CrossEntropyLoss", 0.70, 1.0, 0.0, True),  # ln 4 is 1.386
        ("CrossEntropyLoss", 0.25, 1.0, 0.0, False),
    ],
)
def test_a_gap_is_measured_by_what_one_answer_leaves_to_learn(
    name: str, validation: float, wider: float, apart: float, *, is_found: bool
) -> None:
    """Targets are far from 0, or first scores are bad: the loss at the beginning is far above."""
    numbers = np.random.default_rng(0).permutation(np.arange(400) % 2 * 2 - 1.0)[:, None]
    classes = np.arange(400) % 4
    is_of_numbers = name == "MSELoss"
    outputs = (
        np.zeros((400, 1)) if is_of_numbers else 50 * np.sin(np.arange(1600.0)).reshape(400, 4)
    )
    trial = TrialBuilder()
    for step in range(80):
        is_training = step % 10 < 5
        factor, middle = (wider, 5 + apart) if is_training else (1.0, 5.0)
        targets = middle + factor * numbers if is_of_numbers else classes
        loss = (26.0 if step < 5 else 0.02) if is_training else validation
        trial.step(
            step,
            {
                f"{name}_output_0": np.float64(loss),
                f"{name}_input_0": outputs,
                f"{name}_input_1": targets,
            },
            mode=ModeKeys.TRAIN if is_training else ModeKeys.EVAL,
            mode_step=step,
        )
    assert bool(found_at(GeneralisationGap(), trial)) is is_found
