"""What losses require of the shapes and ranges of what they get."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.facts.loss_contract import broken_contract
from rule_runtime.facts.losses import Losses
from rule_runtime.testing import TrialBuilder

ROWS = 45
OUTPUTS = np.random.default_rng(0).normal(0, 1, ROWS)
BITS = np.arange(ROWS) % 2 * 1.0
LOGARITHMS = np.full((9, 5), np.log(0.2))
SCORES, CLASSES = np.zeros((ROWS, 6)), np.arange(ROWS) % 6
SEVERAL = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]])


def broken(name: str, *inputs: Any, loss: float = 1.0) -> str:
    """Return what is measured of a broken condition, and what is said of it."""
    tensors = {f"{name}_input_{at}": of for at, of in enumerate(inputs)}
    trial = TrialBuilder()
    trial.step(0, {**tensors, f"{name}_output_0": np.float64(loss)})
    (view,) = trial.views()
    (of,) = view.fact(Losses).losses
    mismatch = broken_contract(of)
    return "" if mismatch is None else f"{mismatch.measure}: {mismatch.message}"


@pytest.mark.parametrize(
    ("name", "inputs", "found"),
    [
        ("NLLLoss", (OUTPUTS,), "output: takes log probabilities, at most 0, and gets outputs"),
        ("KLDivLoss", (OUTPUTS,), "output: "),
        ("NLLLoss", (-abs(OUTPUTS),), ""),
        ("MSELoss", (OUTPUTS[:, None], OUTPUTS), "elements: compares 2025 pairs, each output"),
        ("Loss", (OUTPUTS, OUTPUTS[:, None]), "elements: "),
        ("Loss", (OUTPUTS[:, None], 0 * OUTPUTS), ""),
        ("MSELoss", (OUTPUTS, OUTPUTS), ""),
        ("MSELoss", (OUTPUTS[:1, None], OUTPUTS[:1]), ""),
        ("MSELoss", (OUTPUTS.reshape(15, 3), OUTPUTS[:3]), ""),  # the same for every row
        ("MSELoss", (OUTPUTS, np.float64(1)), ""),
        ("MSELoss", (OUTPUTS, OUTPUTS[:7]), ""),
        ("L1Loss", (OUTPUTS[:, None], OUTPUTS[None, :]), ""),  # every pair is meant
        ("PairwiseLoss", (OUTPUTS[:, None], OUTPUTS), ""),
        ("BCEWithLogitsLoss", (OUTPUTS, BITS), ""),
        ("BCEWithLogitsLoss", (OUTPUTS, 0.05 + 0.9 * BITS), ""),
        ("BCEWithLogitsLoss", (OUTPUTS, 2 * BITS - 1), "target: takes targets from 0 to 1, and"),
        ("BCELoss", (OUTPUTS, 255 * BITS), "target: "),
        ("MultiLabelSoftMarginLoss", (SCORES, 2 * SCORES - 1), "target: "),
        ("SoftMarginLoss", (OUTPUTS, 2 * BITS - 1), ""),
        ("HingeEmbeddingLoss", (OUTPUTS, np.ones(ROWS)), ""),
        ("PoissonNLLLoss", (OUTPUTS, OUTPUTS), "target: takes counts"),
        ("PoissonNLLLoss", (OUTPUTS, 3 * BITS), ""),
        ("MultiLabelMarginLoss", (SCORES, SCORES % 2), ""),
        ("KLDivLoss", (LOGARITHMS, np.exp(LOGARITHMS)), ""),
        ("KLDivLoss", (LOGARITHMS, LOGARITHMS), ""),  # log_target
        ("KLDivLoss", (LOGARITHMS, np.ones((9, 5))), "row_sum: takes rows of targets"),
        ("CrossEntropyLoss", (SCORES, CLASSES), ""),
        ("CrossEntropyLoss", (SCORES[:, :1], CLASSES * 0), "scores: is always 0"),
        (
            "CrossEntropyLoss",
            (SEVERAL * 1.0, SEVERAL * 1.0),
            "row_sum: takes rows of targets that ",
        ),
        ("CrossEntropyLoss", (SEVERAL * 1.0, np.eye(3)), ""),
        ("CrossEntropyLoss", (SEVERAL * 1.0, np.eye(3)[[0, 0, 0]] * [[1], [0], [0]]), ""),
    ],
)
def test_shapes_and_ranges(name: str, inputs: tuple[Any, ...], found: str) -> None:
    message = broken(name, *inputs)
    assert message.startswith(found)
    assert bool(message) is bool(found)


def test_a_loss_without_inputs_breaks_nothing() -> None:
    assert not broken("NLLLoss")
