"""Validation in other units than training, as of targets that are scaled for training only."""

from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

TARGETS = np.random.default_rng(0).normal(0, 1, (64, 1))


@pytest.mark.parametrize(("scale", "is_found"), [(1.0, True), (4.0, True), (6.0, False)])
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss"])
def test_losses_in_other_units_are_not_compared(name: str, scale: float, is_found: bool) -> None:
    trial = TrialBuilder()
    for step in range(60):
        is_training = step % 10 < 5
        targets = TARGETS if is_training else scale * TARGETS
        loss = 1 / (1 + step) if is_training else scale**2
        trial.step(
            step,
            {
                f"{name}_output_0": np.float64(loss),
                f"{name}_input_0": np.zeros((64, 1)),
                f"{name}_input_1": targets,
            },
            mode=ModeKeys.TRAIN if is_training else ModeKeys.EVAL,
            mode_step=step,
        )
    assert bool(found_at(GeneralisationGap(), trial)) is is_found
