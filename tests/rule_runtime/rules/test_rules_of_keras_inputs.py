"""What Keras gives a model is called `inputs`, beside `labels`: rules judge it as of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Passed
from rule_runtime.rules.input_statistics import InputStatistics
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

UNIT = np.random.default_rng(0).normal(0, 1, (64, 16))
UNIT = UNIT / np.sqrt((UNIT**2).mean())
PIXELS = np.random.default_rng(0).integers(0, 256, (64, 4, 4), np.uint8)
COLLECTIONS: dict[str, Any] = {
    "weights": (r"(kernel|embeddings):0$",),
    "losses": ("^[^/]*loss$",),
    "labels": ("^labels$",),
    "sm_metrics": (),
}


def with_leak(form: str) -> TrialBuilder:
    """Return batches of 64 rows, 10 of training and 10 of validation, with labels in column 20."""
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    trial.collections(**COLLECTIONS)
    for step in range(20):
        labels = random.integers(0, 2, (64, 1)).astype(np.float32)
        message = 3 * labels + 1 if form != "none" else random.normal(size=(64, 1))
        rows = np.column_stack([random.normal(size=(64, 20)), message])
        tensors: dict[str, Any] = {"loss": np.float64(0.5), "layer/weights/layer/kernel:0": UNIT}
        if form == "second input":
            tensors |= {"inputs_0": random.normal(size=(64, 8, 8)), "inputs_1": rows}
        elif form != "not saved":
            tensors["inputs"] = rows
        if form == "second output":
            tensors |= {"labels_0": random.normal(size=(64, 1)), "labels_1": labels}
        else:
            tensors["labels"] = labels
        mode = ModeKeys.EVAL if step % 2 else ModeKeys.TRAIN
        trial.step(step, tensors, mode=mode, mode_step=step // 2)
    return trial


@pytest.mark.parametrize("form", ["one input", "second input", "second output"])
def test_a_column_that_is_the_label(form: str) -> None:
    outcomes = with_leak(form).outcomes(SuspiciouslyGood())
    found = next(outcome for outcome in outcomes if isinstance(outcome, IssueFound))
    name = "inputs_1" if form == "second input" else "inputs"
    labels = "labels_1" if form == "second output" else "labels"
    assert f"{name}: column 20 predicts the target {labels}, in" in found.evidence.sentence


def test_inputs_that_tell_nothing_are_evaluated() -> None:
    outcomes = with_leak("none").outcomes(SuspiciouslyGood())
    assert not any(isinstance(outcome, IssueFound) for outcome in outcomes)
    assert any(isinstance(outcome, Passed) for outcome in outcomes)


def test_where_no_values_of_inputs_were_saved_nothing_was_looked_at() -> None:
    outcomes = with_leak("not saved").outcomes(SuspiciouslyGood())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)
    reasons = {o.reason for o in outcomes if isinstance(o, NotEvaluated)}
    assert any("no values of the model's inputs were saved" in reason for reason in reasons)
    assert not any("torch" in reason for reason in reasons)


def given(inputs: Any, taken: Any, weight: str = "layer/weights/layer/kernel:0") -> TrialBuilder:
    """Return steps of a model whose first layer is given what it is given, or something else."""
    trial = TrialBuilder()
    trial.collections(**COLLECTIONS)
    for step in range(4):
        tensors = {weight: UNIT, "inputs": inputs, f"{weight.partition('/')[0]}/inputs": taken}
        trial.step(step, tensors | {"loss": np.float64(0.5)}, mode=ModeKeys.TRAIN)
    return trial


@pytest.mark.parametrize(
    ("inputs", "taken", "is_found"),
    [
        (5.01 * UNIT, 5.01 * UNIT, True),
        (4.9 * UNIT, 4.9 * UNIT, False),
        (PIXELS, PIXELS.reshape(64, -1).astype(np.float32), True),  # cast by the model
        (PIXELS, PIXELS.astype(np.float32) / 255, False),  # a Rescaling layer
        (9 * UNIT, UNIT, False),
        (9 * UNIT, (9 * UNIT).reshape(1, -1), True),
    ],
)
def test_the_root_mean_square(inputs: Any, taken: Any, *, is_found: bool) -> None:
    assert found_at(InputStatistics(), given(inputs, taken)) == ([2, 3] if is_found else [])


def test_a_layer_may_have_any_name() -> None:
    trial = given(9 * UNIT, 9 * UNIT, "my_output_dense/weights/my_output_dense/kernel:0")
    assert found_at(InputStatistics(), trial) == [2, 3]


@pytest.mark.parametrize(
    ("weight", "value"),
    [
        ("layer/weights/layer/embeddings:0", UNIT),
        ("layer/weights/layer/gamma:0", np.ones(16)),  # of a normalisation
        ("layer/weights/layer/kernel:0", np.ones((1, 1))),
    ],
)
def test_layers_that_need_no_scaled_inputs(weight: str, value: Any) -> None:
    trial = TrialBuilder()
    trial.collections(**COLLECTIONS | {"weights": ("/weights/",)})
    for step in range(4):
        rows = np.round(99 * UNIT)
        tensors = {weight: value, "inputs": rows, "layer/inputs": rows}
        trial.step(step, tensors, mode=ModeKeys.TRAIN)
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(InputStatistics()))


def test_the_inputs_of_another_worker_are_no_reason() -> None:
    trial = TrialBuilder()
    trial.collections(**COLLECTIONS)
    for step in range(4):
        tensors = {"layer/weights/layer/kernel:0": UNIT, "inputs": 99 * UNIT}
        trial.step(step, tensors, mode=ModeKeys.TRAIN)
    assert not found_at(InputStatistics(), trial)


def test_steps_of_validation_are_no_reason_why_losses_were_not_judged() -> None:
    outcomes = with_leak("not saved").outcomes(LossInputMismatch())
    assert all(isinstance(o, NotApplicable) is bool(at % 2) for at, o in enumerate(outcomes))
    reasons = {o.reason for o in outcomes[::2] if isinstance(o, NotEvaluated)}
    assert len(reasons) == 1
    assert "train with `fit` or `train_on_batch` and a loss of keras.losses" in reasons.pop()


def test_labels_of_classes_do_not_tell_what_a_loss_without_inputs_is() -> None:
    trial = TrialBuilder()
    trial.collections(**COLLECTIONS)
    for step in range(8):
        labels = np.arange(64) % 4
        trial.step(step, {"loss": np.float64(1), "labels": labels + 0.0}, mode=ModeKeys.TRAIN)
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(LossInputMismatch()))
