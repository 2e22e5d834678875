from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.double_activation import DoubleActivation
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import first_finding, make_run
from tests.rule_runtime.rules.runs import found_at

SCORES = np.random.default_rng(0).normal(0, 1, (16, 10))


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(scores: Any) -> Any:
    return 1 / (1 + np.exp(-scores))


def relu(values: Any) -> Any:
    return np.maximum(values, 0)


class TestDoubleActivationContract(RuleContract):
    def make_rule(self) -> Rule:
        return DoubleActivation()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        scores = np.random.default_rng(step + worker).normal(0, 1, (16, 10))
        return {**healthy_tensors(step, worker), "a_output_0": scores, "b_input_0": scores}

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "b_input_0": np.tanh(np.tanh(tensors["a_output_0"]))}


def run(loss: str = "CrossEntropyLoss", num_steps: int = 4, **tensors: object) -> TrialBuilder:
    return make_run(
        *({f"{loss}_output_0": np.float64(2.3), **tensors} for _ in range(num_steps)),
        collections={"losses": ("[Ll]oss_output_0$",)},
    )


def test_the_evidence() -> None:
    trial = run("BCEWithLogitsLoss", a_output_0=SCORES, BCEWithLogitsLoss_input_0=sigmoid(SCORES))
    found = first_finding(DoubleActivation(), trial)
    assert found.tensor == "BCEWithLogitsLoss_input_0"
    assert "and went through an activation, and goes into a loss" in found.sentence


@pytest.mark.parametrize("squash", [np.tanh, sigmoid])
@pytest.mark.parametrize(
    ("loss", "fires"), [("BCEWithLogitsLoss", True), ("BCELoss", False), ("MSELoss", False)]
)
def test_logits_that_are_the_tanh_or_sigmoid_of_an_output(
    loss: str, squash: Any, *, fires: bool
) -> None:
    scores = SCORES[:, :1]
    trial = run(loss, a_output_0=scores, **{f"{loss}_input_0": squash(scores)})
    assert bool(found_at(DoubleActivation(), trial)) is fires


@pytest.mark.parametrize("name", ["b_input_0", "Net_output_0", "BCELoss_input_0"])
@pytest.mark.parametrize(
    ("made", "fires"),
    [
        (lambda x: np.tanh(np.tanh(x)), True),
        (lambda x: sigmoid(relu(x)), True),
        (lambda x: sigmoid(sigmoid(x)), True),
        (np.tanh, False),
        (relu, False),
        (lambda x: relu(sigmoid(x)), False),  # the same as one
        (lambda x: x, False),
        (lambda x: np.tanh(relu(x * 1.001)), False),
        (lambda x: np.tanh(relu(x * 20)), False),  # between 0 and 1 exactly, as masks are
    ],
)
def test_two_activations_of_an_output(name: str, made: Any, fires: bool) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_0$",))
    for step in range(4):
        scores = np.random.default_rng(step).normal(0, 1, (16, 10)).astype(np.float32)
        trial.step(step, {"a_output_0": scores, name: made(scores)})
    assert found_at(DoubleActivation(), trial) == ([2, 3] if fires else [])


def test_what_cannot_be_judged() -> None:
    trial = make_run({"CrossEntropyLoss_input_0": softmax(SCORES)}, mode=ModeKeys.EVAL)
    trial.step(1, {"loss": [1.0]})
    outcomes = trial.outcomes(DoubleActivation())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)
