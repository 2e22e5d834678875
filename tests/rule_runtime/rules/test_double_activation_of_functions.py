from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.rules.double_activation import DoubleActivation
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.test_double_activation import SCORES, run, sigmoid

RNG = np.random.default_rng(2)


def relu(values: Any) -> Any:
    return np.maximum(values, 0)


@pytest.mark.parametrize(
    "name", ["b_input_0", "Net_output_0", "BCELoss_input_0", "MSELoss_input_0"]
)
@pytest.mark.parametrize(
    ("made", "fires"),
    [
        (lambda x: np.tanh(np.tanh(x)), True),
        (lambda x: np.tanh(relu(x)), True),
        (lambda x: sigmoid(relu(x)), True),
        (lambda x: sigmoid(sigmoid(x)), True),
        (lambda x: sigmoid(np.tanh(x)), True),
        (np.tanh, False),
        (sigmoid, False),
        (relu, False),
        (lambda x: relu(sigmoid(x)), False),  # the same as one
        (lambda x: x, False),
        (lambda x: np.tanh(relu(x * 1.001)), False),
        (lambda x: np.tanh(relu(x * 20)), False),  # between 0 and 1 exactly, as masks are
    ],
)
def test_two_activations_by_functions_are_told_by_their_extremes(
    name: str, made: Any, fires: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    for step in range(4):
        scores = RNG.normal(0, 1, (16, 10)).astype(np.float32)
        trial.step(step, {"a_output_0": scores, name: made(scores)})
    assert found_at(DoubleActivation(), trial) == ([2, 3] if fires else [])


@pytest.mark.parametrize("size", [1.0, 7e4, 1e7])
def test_a_single_relu_is_one_activation_however_large_numbers_are(size: float) -> None:
    scores = size * SCORES
    assert not found_at(DoubleActivation(), run(a_output_0=scores, b_input_0=relu(scores)))


def test_small_numbers_change_too_little_to_tell_what_they_went_through() -> None:
    scores = SCORES / 1000
    assert not found_at(DoubleActivation(), run(a_output_0=scores, b_input_0=np.tanh(scores)))


@pytest.mark.parametrize(("squash", "fires"), [(np.tanh, True), (sigmoid, True), (abs, False)])
def test_scores_that_a_function_made_of_an_output_are_found_at_once(
    squash: Any, fires: bool
) -> None:
    scores = SCORES[:, :1]
    loss = {"BCEWithLogitsLoss_output_0": 0.7, "BCEWithLogitsLoss_input_0": squash(scores)}
    assert found_at(DoubleActivation(), run(a_output_0=scores, **loss)) == ([2, 3] if fires else [])


def log_softmax(scores: Any) -> Any:
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("module", "into", "beside", "fires"),
    [
        ("4", relu, {}, True),
        ("4", lambda x: x, {}, False),
        ("4", relu, {"Net_4.weight": np.ones((10, 10))}, False),  # a linear layer
        ("4", relu, {"4.fc_input_0": np.ones((16, 10))}, False),  # it has parts
        ("Net", relu, {}, False),  # what the model is given
    ],
)
def test_a_relu_ahead_of_the_last_softmax(
    module: str, into: Any, beside: dict[str, Any], *, fires: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",), weights=("weight$",))
    for step in range(4):
        taken = into(RNG.normal(0, 1, (16, 10)))
        logs = log_softmax(taken if module == "4" else RNG.normal(0, 0.1, (16, 10)))
        tensors = {f"{module}_input_0": taken, f"{module}_output_0": logs, **beside}
        trial.step(step, {**tensors, "NLLLoss_input_0": logs, "NLLLoss_output_0": np.float64(2.0)})
    assert found_at(DoubleActivation(), trial) == ([2, 3] if fires else [])


@pytest.mark.parametrize(
    ("made", "targets", "loss", "fires"),
    [
        (relu, lambda x: x, "MSELoss", True),
        (relu, abs, "MSELoss", False),
        (relu, lambda x: abs(x) - 0.1, "MSELoss", False),  # 0 but for some noise
        (lambda x: x, lambda x: x, "MSELoss", False),
        (sigmoid, lambda x: x, "L1Loss", True),
        (sigmoid, lambda x: sigmoid(3 * x), "L1Loss", False),
        (np.tanh, lambda x: 2 * x, "SmoothL1Loss", True),
        (np.tanh, np.sign, "MSELoss", False),
        # Outliers that are cut off on purpose.
        (np.tanh, lambda x: np.where(abs(x) > 2.5, 3, x / 4), "HuberLoss", False),
        (np.tanh, lambda x: 2 * x, "ActorLoss", False),  # drawn, perhaps
    ],
)
def test_an_activation_at_the_end_of_a_regression_must_reach_the_targets(
    made: Any, targets: Any, loss: str, *, fires: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    for step in range(4):
        scores = RNG.normal(0, 1, (64, 10))
        inputs = {f"{loss}_input_0": made(scores), f"{loss}_input_1": targets(scores)}
        trial.step(step, {"a_output_0": scores, **inputs, f"{loss}_output_0": np.float64(1.0)})
    assert found_at(DoubleActivation(), trial) == ([2, 3] if fires else [])


@pytest.mark.parametrize("is_module", [True, False])
@pytest.mark.parametrize(
    ("loss", "targets", "fires"),
    [
        (0.55, "binary", True),
        (64 * 0.55, "binary", True),  # a sum
        (0.05, "binary", False),  # of the probabilities as they are
        (1.2, "binary", False),
        (0.55, "amounts", False),
    ],
)
def test_sure_probabilities_of_yes_or_no_whose_loss_stays_high(
    loss: float, targets: str, *, is_module: bool, fires: bool
) -> None:
    """With as many 0 as 1 cross entropy of a sigmoid of probabilities is between 0.50 and 1.01."""
    given = sigmoid(8 * np.linspace(-1, 1, 64))[:, None]
    beside = (given > 0.5) * 1.0 if targets == "binary" else given**2
    names = ("My_loss_input_0", "My_loss_input_1", "My_loss_output_0")
    names = names if is_module else ("Net_output_0", "labels", "Loss_output_0")
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    for step in range(10):
        trial.step(step, dict(zip(names, (given, beside, np.float64(loss)), strict=True)))
    assert found_at(DoubleActivation(), trial) == ([8, 9] if fires else [])


@pytest.mark.parametrize(
    ("made", "is_doubled", "fires"),
    [
        (lambda x: sigmoid(4 * x), True, True),
        (lambda x: sigmoid(4 * x), False, False),  # probabilities, as the loss wants them
        (lambda x: 4 * x, True, False),  # scores
        (lambda x: np.clip(0.5 + 0.15 * x, 0, 1), True, False),  # scores that are small yet
    ],
)
def test_values_tell_that_a_loss_takes_sigmoids_of_probabilities(
    made: Any, *, is_doubled: bool, fires: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    given = made(np.random.default_rng(5).normal(0, 1, (32, 16)))
    shares = np.random.default_rng(6).random((32, 16))
    for step in range(3):
        if is_doubled:
            losses = np.log1p(np.exp(given)) - shares * given
        else:
            losses = -shares * np.log(given) - (1 - shares) * np.log(1 - given)
        values = {"My_loss_input_0": given, "My_loss_input_1": shares} if step != 1 else {}
        trial.step(step, {**values, "My_loss_output_0": losses.sum(1).mean()})
    assert found_at(DoubleActivation(), trial) == ([2] if fires else [])
