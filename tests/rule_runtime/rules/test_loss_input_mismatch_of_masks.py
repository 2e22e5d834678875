"""LossInputMismatch where a loss is of the overlap of masks."""

from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at


@pytest.mark.parametrize("is_module", [True, False])
@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize("num_values", [1, 2])
def test_the_overlap_of_masks_is_of_probabilities(
    *, is_module: bool, is_raw: bool, num_values: int
) -> None:
    name = "DiceLoss" if is_module else "Loss"
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    for step in range(num_values):
        masks = (random.uniform(size=(8, 1, 6, 6)) < 0.3).astype(np.float32)
        logits = 3 * masks - 1 + random.normal(size=masks.shape)
        given = logits if is_raw else 1 / (1 + np.exp(-logits))
        loss = 1 - 2 * (given * masks).sum() / (given.sum() + masks.sum() + 1)
        tensors = {f"{name}_input_0": given, f"{name}_input_1": masks}
        trial.step(10 * step, {**tensors, f"{name}_output_0": np.float64(loss)})
    assert bool(found_at(LossInputMismatch(), trial)) is (is_raw and num_values > 1)
