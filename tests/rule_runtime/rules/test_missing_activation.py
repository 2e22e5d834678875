from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated
from rule_runtime.evaluation.rule import Rule
from rule_runtime.rules.missing_activation import MissingActivation
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.rules.runs import found_at


def network(widths: tuple[int, ...], step: int = 0, *, activation: bool = True) -> dict[str, Any]:
    """Return what linear layers of these widths save, with or without ReLU between them."""
    rng = np.random.default_rng(step)
    x = rng.normal(0, 1, (16, widths[0]))
    tensors: dict[str, Any] = {}
    for at, (inputs, outputs) in enumerate(pairwise(widths)):
        weight = rng.normal(0, 1, (outputs, inputs))
        tensors |= {f"Net_fc{at}.weight": weight, f"fc{at}_input_0": x}
        x = x @ weight.T
        tensors[f"fc{at}_output_0"] = x
        x = np.maximum(x, 0) if activation else x
    return tensors


class TestMissingActivationContract(RuleContract):
    def make_rule(self) -> Rule:
        return MissingActivation()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        return network((8, 6, 4), step + worker)

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "fc1_input_0": tensors["fc0_output_0"]}


def run(tensors: dict[str, Any], num_steps: int = 4, **options: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(num_steps):
        trial.step(step, tensors, **options)
    return trial


def test_fires_for_layers_with_nothing_between() -> None:
    trial = run(network((8, 6, 6, 4), activation=False))
    assert found_at(MissingActivation(), trial) == [2, 3]
    found = next(o for o in trial.outcomes(MissingActivation()) if isinstance(o, IssueFound))
    assert found.evidence.tensor == "fc0_output_0"
    assert found.evidence.value == 2
    assert "fc0 and fc1 are one linear layer" in found.evidence.sentence
    assert not found_at(MissingActivation(), run(network((8, 6, 6, 4))))


@pytest.mark.parametrize(
    ("widths", "fires"),
    [((8, 4, 4), True), ((8, 3, 8), False), ((8, 3, 4), False), ((2, 8, 8), True)],
)
def test_a_bottleneck_is_on_purpose(widths: tuple[int, ...], fires: bool) -> None:
    assert bool(found_at(MissingActivation(), run(network(widths, activation=False)))) is fires


def test_a_projection_for_queries_keys_and_values_is_no_layer_too_many() -> None:
    tensors = network((8, 8, 8), activation=False)
    rng = np.random.default_rng(1)
    for name in ("key", "value"):
        weight = rng.normal(0, 1, (8, 8))
        x = tensors["fc0_output_0"]
        tensors |= {f"Net_{name}.weight": weight, f"{name}_input_0": x}
        tensors[f"{name}_output_0"] = x @ weight.T
    assert not found_at(MissingActivation(), run(tensors))


def test_an_output_that_goes_around_a_block_is_no_layer_too_many() -> None:
    tensors = network((8, 8, 16), activation=False)
    weight, hidden = np.random.default_rng(1).normal(0, 1, (8, 16)), tensors["fc1_output_0"]
    tensors |= {"Net_fc2.weight": weight, "fc2_input_0": np.maximum(hidden, 0)}
    tensors["fc2_output_0"] = tensors["fc2_input_0"] @ weight.T
    assert found_at(MissingActivation(), run(tensors)) == [2, 3]
    tensors["head_input_0"] = tensors["fc0_output_0"] + tensors["fc2_output_0"]
    assert not found_at(MissingActivation(), run(tensors))


def convolutions(*kernels: tuple[int, ...]) -> dict[str, Any]:
    """Return what convolutions one behind the other save, with nothing between them."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (4, kernels[0][1], 5, 5))
    tensors: dict[str, Any] = {}
    for at, kernel in enumerate(kernels):
        tensors |= {f"Net_conv{at}.weight": rng.normal(0, 1, kernel), f"conv{at}_input_0": x}
        x = tensors[f"conv{at}_output_0"] = rng.normal(0, 1, (4, kernel[0], 5, 5))
    return tensors


def test_convolutions_are_linear_too() -> None:
    assert found_at(MissingActivation(), run(convolutions((8, 1, 3, 3), (16, 8, 3, 3)))) == [2, 3]
    narrow = convolutions((4, 8, 1, 1), (16, 4, 1, 1))
    assert not found_at(MissingActivation(), run(narrow))


def test_a_depthwise_convolution_belongs_to_the_next_one() -> None:
    tensors = convolutions((8, 8, 3, 3), (16, 8, 1, 1))
    tensors["Net_conv0.weight"] = np.ones((8, 1, 3, 3))
    assert not found_at(MissingActivation(), run(tensors))


def test_normalisations_and_embeddings_are_no_linear_layers() -> None:
    x = np.random.default_rng(0).normal(0, 1, (4, 8))
    tensors = {
        "Net_norm.weight": np.ones(8),
        "norm_input_0": x,
        "norm_output_0": x,
        "Net_embedding.weight": np.ones((40, 8)),
        "embedding_input_0": np.ones((4, 3), dtype=np.int64),
        "embedding_output_0": x,
    }
    (outcome, *_) = run(tensors).outcomes(MissingActivation())
    assert outcome == NotEvaluated("no linear layer was saved with its input and output")


def test_outputs_that_do_not_vary_say_nothing() -> None:
    tensors = network((8, 6, 4), activation=False)
    zeros = {name: np.zeros_like(value) for name, value in tensors.items() if "put_0" in name}
    assert not found_at(MissingActivation(), run({**tensors, **zeros}))


def test_what_cannot_be_judged() -> None:
    trial = run(network((8, 6, 4), activation=False), mode=ModeKeys.EVAL)
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(MissingActivation()))
    trial = TrialBuilder()
    trial.step(0, {"fc0_output_0": [1.0]})
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(MissingActivation()))
