"""The conditions of PoorWeightInitialization that look at the weights of the first step."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.rules.poor_weight_initialization import PoorWeightInitialization
from tests.rule_runtime.outcomes import make_run

OF_WEIGHTS = ("scale", "symmetry")
RNG = np.random.default_rng(0)


def outcome_of(tensors: dict[str, Any], *, save_values: bool = True) -> Outcome:
    trial = make_run(tensors, save_values=save_values)
    (outcome,) = trial.outcomes(PoorWeightInitialization(conditions=OF_WEIGHTS))
    return outcome


def network(*weights: Any, growth: float | None = None) -> dict[str, Any]:
    """Return what linear layers of these weights save at a step.

    Args:
        weights: Their weights.
        growth: Output of a layer divided by its input; None for what its weight gives.
    """
    tensors: dict[str, Any] = {}
    for at, weight in enumerate(weights):
        x = RNG.normal(0, 1, (16, weight.shape[1]))
        out = x @ weight.T if growth is None else RNG.normal(0, growth, (16, len(weight)))
        tensors |= {f"Net_fc{at}.weight": weight, f"gradient/Net_fc{at}.weight": weight}
        tensors |= {f"fc{at}_input_0": x, f"fc{at}_output_0": out}
    return tensors


def layer(outputs: int, inputs: int, gain: float) -> Any:
    return RNG.normal(0, gain / inputs**0.5, (outputs, inputs))


@pytest.mark.parametrize(
    ("gains", "fires"),
    [
        ((0.58, 0.58, 0.58), False),  # as PyTorch does
        ((1.41, 1.41, 1.0), False),  # Kaiming
        ((0.0, 0.58, 0.0), False),
        ((17.0, 17.0, 17.0), True),
        ((8.0, 8.0, 0.58), True),  # normal with variance 1
        ((0.58, 17.0, 0.58), False),  # one of three may be on purpose
    ],
)
def test_weights_that_begin_too_large(gains: tuple[float, ...], fires: bool) -> None:
    tensors = network(*(layer(64, 64, gain) for gain in gains))
    outcome = outcome_of(tensors, save_values=False)
    assert isinstance(outcome, IssueFound if fires else Passed)
    if isinstance(outcome, IssueFound):
        assert outcome.evidence.measure == "gain"
        assert f"as do {sum(g > 3 for g in gains)} of 3 weights" in outcome.evidence.sentence


def test_a_layer_of_few_outputs_is_judged_by_them() -> None:
    fan_out = RNG.normal(0, 2**0.5, (1, 512))  # Kaiming by the number of outputs
    assert isinstance(outcome_of(network(fan_out)), Passed)


def test_weights_that_the_model_scales_down_are_not_too_large() -> None:
    weights = [layer(64, 64, 8.0), layer(64, 64, 8.0)]
    assert isinstance(outcome_of(network(*weights)), IssueFound)
    scaled = network(*weights, growth=1.4)
    assert isinstance(outcome_of(scaled), Passed)


def test_weights_without_layers_or_gradients_are_not_judged() -> None:
    large = network(layer(64, 64, 20.0))
    frozen = {name: value for name, value in large.items() if not name.startswith("gradient")}
    embedding = {
        "Net_e.weight": RNG.normal(0, 1, (100, 64)),
        "gradient/Net_e.weight": np.ones((100, 64)),
        "e_input_0": np.ones((16, 9), np.int64),
        "e_output_0": RNG.normal(0, 1, (16, 9, 64)),
    }
    bare = {name: value for name, value in large.items() if "put" not in name}
    for tensors, message in (
        (frozen, "no weight of a linear, recurrent or attention layer was saved with a gradient"),
        (bare, "no linear layer was saved with its input, output and whole weight"),
        (embedding, "no linear layer was saved with its input, output and whole weight"),
    ):
        trial = make_run(*(tensors for _ in range(2)))
        first, second = trial.outcomes(PoorWeightInitialization(conditions=OF_WEIGHTS))
        assert isinstance(first, NotEvaluated)
        assert message in first.reason
        assert second == NotApplicable("weights are evaluated only at step 0")


@pytest.mark.parametrize(
    "name", ["rnn.weight_ih_l0", "rnn.weight_hh_l1_reverse", "attention.in_proj_weight"]
)
def test_packed_weights_are_reported_by_their_names(name: str) -> None:
    for value, fires in ((layer(96, 32, 20.0), True), (layer(96, 32, 1.0), False)):
        tensors = {f"Net_{name}": value, f"gradient/Net_{name}": value}
        outcome = outcome_of(tensors)
        assert isinstance(outcome, IssueFound) is fires


@pytest.mark.parametrize(
    ("weights", "fires"),
    [
        ((np.full((8, 4), 0.1), np.full((8, 8), 0.1), np.full((1, 8), 0.1)), True),
        ((np.full((8, 4), 0.1), layer(1, 8, 1.0)), True),
        ((layer(8, 4, 1.0), np.zeros((8, 8)), np.zeros((3, 8))), False),  # residual, last layer
        ((layer(8, 4, 1.0), layer(8, 8, 1.0), np.full((1, 8), 0.125)), False),  # a mean
        ((np.full((3, 4), 0.1),), False),  # a linear model learns from any start
        ((np.eye(8), np.eye(8)), False),
        ((np.zeros((8, 4)), np.zeros((3, 8))), True),  # one layer after the other
        ((np.zeros((8, 4)), np.full((6, 8), 0.1), np.zeros((3, 6))), True),
        ((np.zeros((3, 16)), np.zeros((5, 16))), False),  # two heads of a model that is frozen
        ((np.zeros((8, 8)),), False),
    ],
)
def test_weights_that_make_all_units_the_same(weights: tuple[Any, ...], fires: bool) -> None:
    outcome = outcome_of(network(*weights), save_values=False)
    assert isinstance(outcome, IssueFound if fires else Passed)
    if isinstance(outcome, IssueFound):
        assert outcome.evidence.measure == "initial_value"
        assert re.search(r"begins with 0(\.1)? in all elements", outcome.evidence.sentence)


def test_conditions() -> None:
    rule = create_rule("PoorWeightInitialization", {"conditions": "scale,symmetry"})
    assert isinstance(rule, PoorWeightInitialization)
    assert rule.conditions == OF_WEIGHTS
    assert not any("save_raw_tensor" in config.parameters for config in rule.requires())
    # What the original finds is not asked for.
    unlike = {f"l{at}.relu_input_0": RNG.normal(0, 9.0**at, (8, 4)) for at in range(2)}
    assert isinstance(outcome_of(unlike), NotEvaluated)
    for wrong in ((), ("scale", "size")):
        with pytest.raises(ParameterError, match="must be some of variances, gradients"):
            PoorWeightInitialization(conditions=wrong)
