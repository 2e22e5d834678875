from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.double_activation import DoubleActivation
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.rules.runs import found_at

SCORES = np.random.default_rng(0).normal(0, 1, (16, 10))


def softmax(scores: Any) -> Any:
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


class TestDoubleActivationContract(RuleContract):
    def make_rule(self) -> Rule:
        return DoubleActivation()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        scores = np.random.default_rng(step + worker).normal(0, 1, (16, 10))
        return {**healthy_tensors(step, worker), "CrossEntropyLoss_input_0": scores}

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {
            **tensors,
            "CrossEntropyLoss_input_0": softmax(tensors["CrossEntropyLoss_input_0"]),
        }


def run(num_steps: int = 4, **tensors: object) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(
        losses=("[Ll]oss_output_0$",),
        relu_output=("relu_output",),
        relu_input=("relu_input",),
        sigmoid_input=("sigmoid_input",),
        tanh_output=("tanh_output",),
    )
    for step in range(num_steps):
        trial.step(step, {"CrossEntropyLoss_output_0": np.float64(2.3), **tensors})
    return trial


@pytest.mark.parametrize(
    ("value", "fires"),
    [
        (SCORES, False),
        (softmax(SCORES), True),
        (1 / (1 + np.exp(-SCORES)), False),  # not yet: scores may lie between 0 and 1 by chance
        (np.maximum(SCORES, 0), True),
        (np.abs(SCORES) + 0.1, False),
        (np.full((16, 10), 0.1), False),
        (np.log(softmax(SCORES)), False),
    ],
)
def test_inputs_of_cross_entropy(value: object, fires: bool) -> None:
    trial = run(CrossEntropyLoss_input_0=value)
    assert found_at(DoubleActivation(), trial) == ([2, 3] if fires else [])


@pytest.mark.parametrize("kind", ["sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("loss", ["BCELoss", "MSELoss", "L1Loss"])
def test_a_loss_of_activations_may_have_an_activation_ahead(kind: str, loss: str) -> None:
    value = np.maximum(SCORES, 0) if kind == "relu" else np.tanh(SCORES)
    trial = run(40, **{f"a_{kind}_output_0": value, f"{loss}_input_0": value})
    assert not found_at(DoubleActivation(), trial)


def test_the_output_of_a_layer_as_scores_is_found_at_once() -> None:
    value = np.tanh(SCORES)
    trial = run(
        a_tanh_output_0=value, BCEWithLogitsLoss_input_0=value, BCEWithLogitsLoss_output_0=0.7
    )
    assert found_at(DoubleActivation(), trial) == [2, 3]


def test_scores_that_lie_between_0_and_1_by_chance_are_watched_for_long() -> None:
    weak = {"BCEWithLogitsLoss_input_0": np.linspace(0.2, 0.8, 64)[:, None]}
    loss = {"BCEWithLogitsLoss_output_0": 0.7}
    assert not found_at(DoubleActivation(), run(120, **weak, **loss))
    sigmoid = np.linspace(0.05, 0.95, 64)[:, None]
    trial = run(52, BCEWithLogitsLoss_input_0=sigmoid, **loss)
    assert found_at(DoubleActivation(), trial) == [49, 50, 51]
    found = next(o for o in trial.outcomes(DoubleActivation()) if isinstance(o, IssueFound))
    assert "it looks as if it went through an activation already" in found.evidence.sentence


def test_the_evidence() -> None:
    trial = run(CrossEntropyLoss_input_0=[[0.25, 0.75]])
    found = next(o for o in trial.outcomes(DoubleActivation()) if isinstance(o, IssueFound))
    assert found.evidence.tensor == "CrossEntropyLoss_input_0"
    assert "lies between 0.25 and 0.75" in found.evidence.sentence


def test_probabilities_are_what_other_losses_want() -> None:
    for name in ("BCELoss_input_0", "MSELoss_input_0", "NLLLoss_input_0"):
        trial = run(40, **{name: softmax(SCORES), name.replace("input", "output"): [3.0]})
        assert not found_at(DoubleActivation(), trial)


@pytest.mark.parametrize(
    ("loss", "is_sure", "fires"),
    [
        (1.47, True, True),
        (16 * 1.47, True, True),  # a sum over the batch
        (1.45, True, False),
        (2.47, True, False),
        (1.47, False, False),  # may be minus the logarithm of what it gets
    ],
)
def test_a_loss_of_another_name_is_watched_for_long(
    loss: float, is_sure: bool, fires: bool
) -> None:
    # With 10 classes cross entropy after a second softmax is between ln(e + 9) - 1 = 1.461 and 1
    # more.
    value = softmax(SCORES * (12 if is_sure else 1))
    trial = run(20, My_loss_input_0=value, My_loss_output_0=np.float64(loss))
    assert found_at(DoubleActivation(), trial) == (list(range(8, 20)) if fires else [])


def test_a_loss_that_once_was_something_else_is_no_doubled_softmax() -> None:
    """As the mean error of an age in years, which falls into the range that is looked for."""
    value = softmax(SCORES * 12)
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    for step in range(60):
        loss = np.float64(max(6.0 - step / 2, 1.9))
        trial.step(step, {"Net_output_0": value, "Loss_output_0": loss})
    assert not found_at(DoubleActivation(), trial)


def test_an_activation_that_gets_the_output_of_another_one() -> None:
    relu = np.maximum(SCORES, 0)
    assert found_at(DoubleActivation(), run(a_relu_output_0=relu, b_sigmoid_input_0=relu)) == [2, 3]
    assert not found_at(DoubleActivation(), run(a_relu_output_0=relu, b_sigmoid_input_0=relu + 1))
    assert not found_at(DoubleActivation(), run(a_relu_output_0=relu, b_relu_input_0=relu))
    tanh = np.tanh(SCORES)
    assert found_at(DoubleActivation(), run(a_tanh_output_0=tanh, b_relu_input_0=tanh)) == [2, 3]


def test_what_cannot_be_judged() -> None:
    trial = TrialBuilder()
    trial.step(0, {"CrossEntropyLoss_input_0": softmax(SCORES)}, mode=ModeKeys.EVAL)
    trial.step(1, {"loss": [1.0]})
    outcomes = trial.outcomes(DoubleActivation())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


SURE = np.random.default_rng(1).normal(0, 12, (64, 10))


def sigmoid(scores: Any) -> Any:
    return 1 / (1 + np.exp(-scores))


@pytest.mark.parametrize(
    ("loss", "value", "fires"),
    [
        ("NLLLoss", np.log(softmax(softmax(SURE))), True),
        ("AlignmentLoss", np.log(softmax(softmax(SURE))), True),
        ("NLLLoss", np.log(softmax(SURE)), False),
        ("NLLLoss", np.log(softmax(SCORES)), False),
        ("NLLLoss", np.log(softmax(softmax(SCORES))), False),  # may be scores that are still small
        ("BCELoss", sigmoid(sigmoid(SURE)), True),
        ("BCELoss", sigmoid(np.maximum(SURE, 0)), True),
        ("BCELoss", sigmoid(SURE), False),
        ("BCELoss", sigmoid(SCORES / 10), False),
        ("CrossEntropyLoss", sigmoid(SURE), True),
        ("CrossEntropyLoss", np.tanh(SURE), True),
        ("CrossEntropyLoss", np.tanh(SCORES / 3), False),
        ("MSELoss", np.tanh(SURE), False),
        ("MSELoss", sigmoid(SURE), False),
    ],
)
def test_what_a_second_activation_gives_at_both_ends_of_its_range(
    loss: str, value: Any, fires: bool
) -> None:
    trial = run(12, **{f"{loss}_input_0": value, f"{loss}_output_0": np.float64(2.0)})
    assert found_at(DoubleActivation(), trial) == ([8, 9, 10, 11] if fires else [])


def log_softmax(scores: Any) -> Any:
    return np.log(softmax(scores))


@pytest.mark.parametrize(
    ("surest", "num_classes", "is_double", "fires"),
    [
        (0.8, 10, True, True),
        (0.88, 4, True, True),
        (0.5, 10, True, False),
        (0.8, 10, False, False),
    ],
)
def test_logarithms_of_a_doubled_softmax_need_not_quite_reach_its_ends(
    surest: float, num_classes: int, is_double: bool, fires: bool
) -> None:
    """The largest probability grows by 0.08 in 12 steps; a single softmax has small scores."""
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    rng = np.random.default_rng(0)
    for step in range(12):
        first = np.linspace(0.4, surest + step / 150, 32)[:, None]
        rows = np.eye(num_classes)
        probabilities = first * rows[0] + (1 - first) * rows[1]
        scores = probabilities if is_double else rng.normal(0, 0.2, (32, num_classes))
        tensors = {"NLLLoss_input_0": log_softmax(scores), "NLLLoss_output_0": np.float64(2.0)}
        trial.step(step, tensors)
    assert bool(found_at(DoubleActivation(), trial)) is fires


@pytest.mark.parametrize(
    ("loss", "labels", "fires"),
    [
        (1.9, np.arange(32) % 10, True),
        (0.2, np.arange(32) % 10, False),  # minus the logarithm of what it returns
        (1.9, None, True),
        (0.2, None, False),
        (1.9, np.linspace(0, 1, 32), False),  # nobody knows what the loss is of
    ],
)
def test_probabilities_that_a_model_returns_to_a_loss_that_is_no_module(
    loss: float, labels: Any, fires: bool
) -> None:
    sure = softmax(np.eye(10)[np.arange(32) % 10] * 5)
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    beside = {} if labels is None else {"labels": labels}
    for step in range(10):
        trial.step(step, {**beside, "Net_output_0": sure, "Loss_output_0": np.float64(loss)})
    assert found_at(DoubleActivation(), trial) == ([8, 9] if fires else [])


def test_probabilities_that_are_not_sure_yet_may_have_a_large_loss() -> None:
    unsure = softmax(np.random.default_rng(0).normal(0, 0.5, (32, 10)))
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    labels = np.arange(32) % 10
    for step in range(50):
        tensors = {"Net_output_0": unsure, "labels": labels, "Loss_output_0": np.float64(2.3)}
        trial.step(step, tensors)
    assert not found_at(DoubleActivation(), trial)
