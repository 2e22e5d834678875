from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.missing_activation import MissingActivation
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.outcomes import first_finding, make_run
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
    found = first_finding(MissingActivation(), trial)
    assert found.tensor == "fc0_output_0"
    assert found.value == 2
    assert "fc0 and fc1 are one linear layer" in found.sentence
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
    """Return what convolutions in a row save, with nothing between them."""
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
    assert isinstance(outcome, NotEvaluated)
    assert outcome.reason.startswith("no linear layer was saved with its input, output and whole")


def test_outputs_that_do_not_vary_say_nothing() -> None:
    tensors = network((8, 6, 4), activation=False)
    zeros = {name: np.zeros_like(value) for name, value in tensors.items() if "put_0" in name}
    assert not found_at(MissingActivation(), run({**tensors, **zeros}))


def test_what_cannot_be_judged() -> None:
    trial = run(network((8, 6, 4), activation=False), mode=ModeKeys.EVAL)
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(MissingActivation()))
    trial = make_run({"fc0_output_0": [1.0]})
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(MissingActivation()))


def chain(between: str, num_layers: int = 3, *, activation: bool = False) -> dict[str, Any]:
    """Return what linear layers save that have a module between them, and maybe a ReLU after it.

    Args:
        between: `norm` for a batch normalisation, `prelu`, `selu` or `dropout`.
        num_layers: Number of linear layers.
        activation: Whether a ReLU follows.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (64, 16))
    tensors: dict[str, Any] = {}
    for at in range(num_layers):
        weight = rng.normal(0, 0.25, (16, 16))
        tensors |= {f"Net_fc{at}.weight": weight, f"fc{at}_input_0": x}
        tensors[f"fc{at}_output_0"] = tensors[f"m{at}_input_0"] = x = x @ weight.T
        if between == "norm":
            bias = rng.normal(0, 0.1, 16)
            tensors |= {f"Net_m{at}.weight": np.ones(16), f"Net_m{at}.bias": bias}
            x = (x - x.mean(0)) / x.std(0) + bias
        elif between == "prelu":
            tensors[f"Net_m{at}.weight"] = np.full(1, 0.25)
            x = np.where(x < 0, 0.25 * x, x)
        elif between == "selu":
            x = 1.0507 * np.where(x < 0, 1.6733 * np.expm1(x), x)
        else:
            x = np.where(rng.random(x.shape) < 0.1, 0, x / 0.9)
        tensors[f"m{at}_output_0"] = x
        x = np.maximum(x, 0) if activation else x
    return tensors


@pytest.mark.parametrize(
    ("between", "num_layers", "fires"),
    [
        ("norm", 3, True),
        ("norm", 2, True),
        ("dropout", 2, True),
        ("prelu", 3, False),
        ("selu", 3, False),
    ],
)
def test_normalisation_and_dropout_are_no_activations(
    between: str, num_layers: int, fires: bool
) -> None:
    assert bool(found_at(MissingActivation(), run(chain(between, num_layers)))) is fires
    active = chain(between, num_layers, activation=True)
    assert not found_at(MissingActivation(), run(active))


def test_a_norm_here_and_there_may_lack_an_activation_on_purpose() -> None:
    tensors = chain("norm", 9, activation=True)
    for at in (1, 3):
        tensors[f"fc{at}_input_0"] = tensors[f"m{at - 1}_output_0"]
    assert not found_at(MissingActivation(), run(tensors))
    tensors["fc5_input_0"] = tensors["m4_output_0"]
    assert found_at(MissingActivation(), run(tensors))


def test_pooling_is_no_activation_even_if_one_module_pools_twice() -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {}
    shapes = ((1, 8, 8), (8, 4, 4), (16, 2, 2))
    x = rng.normal(0, 1, (4, *shapes[0]))
    for at, (before, after) in enumerate(pairwise(shapes)):
        kernel = rng.normal(0, 1, (after[0], before[0], 3, 3))
        out = rng.normal(0, 1, (4, after[0], *before[1:]))
        tensors |= {f"Net_conv{at}.weight": kernel, f"conv{at}_input_0": x}
        tensors |= {f"conv{at}_output_0": out, f"pool_input_{at}": out}
        x = tensors[f"pool_output_{at}"] = out[:, :, ::2, ::2]
    tensors |= {"Net_fc.weight": np.ones((10, 64)), "fc_input_0": x.reshape(4, 64)}
    tensors["fc_output_0"] = rng.normal(0, 1, (4, 10))
    assert found_at(MissingActivation(), run(tensors)) == [2, 3]
    tensors["fc_input_0"] = np.maximum(tensors["fc_input_0"], 0)
    assert not found_at(MissingActivation(), run(tensors))
