"""Gradients by parameter, and weights as initialised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.initialisation import first_weights
from rule_runtime.facts.parameters import Gradients, is_as_initialised
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.outcomes import make_run

RNG = np.random.default_rng(0)


def view(**tensors: Any) -> StepView:
    return make_run({name.replace("__", "/"): value for name, value in tensors.items()}).views()[0]


def test_gradients_of_parameters() -> None:
    names = ("a", "b", "c", "d")
    step = view(
        **{f"Net_{name}.weight": np.ones(2) for name in names},
        **{
            "gradient__Net_a.weight": np.array([1.0, -3.0]),
            "gradient__Net_b.weight": np.zeros(2),
            "gradient__Net_c.weight": np.full(2, np.nan),
        },
    )
    weights = step.tensors(collections=("weights",))
    found = dict(zip(weights.names, step.fact(Gradients).of(weights), strict=True))
    assert found["Net_a.weight"] == 2.0
    assert found["Net_b.weight"] == 0.0
    assert found["Net_c.weight"] == np.inf  # it is there
    assert np.isnan(found["Net_d.weight"])
    assert step.fact(Gradients).learning("worker_0") == {"Net_a.weight", "Net_c.weight"}


@pytest.mark.parametrize(("bias", "weight", "is_it"), [(1e-9, 1e-3, True), (1e-5, 1e-3, False)])
def test_a_bias_before_a_normalisation_gets_rounding(
    bias: float, weight: float, is_it: bool
) -> None:
    step = view(
        **{
            "gradient__Net_a.weight": np.full((4, 3), weight),
            "gradient__Net_a.bias": np.full(4, bias),
        }
    )
    gradients = step.fact(Gradients)
    found = dict(zip(gradients.rows.names, gradients.is_cancelled.tolist(), strict=True))
    assert found == {"gradient/Net_a.weight": False, "gradient/Net_a.bias": is_it}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "no tensor of the collection gradients was saved"),
        ({"gradient__Net_a.weight": np.zeros(2)}, "all saved gradients are zero"),
    ],
)
def test_what_is_missing_is_reported(tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(Missing, match=message):
        view(**{"Net_a.weight": np.ones(2)}, **tensors).fact(Gradients).require()


def test_weights_as_initialised() -> None:
    uniform = RNG.uniform(-0.25, 0.25, (32, 16))
    step = view(
        **{
            "Net_torch.weight": uniform,
            "Net_keras.weight": RNG.uniform(-0.25, 0.25, (64, 32)),  # sqrt(6 / 96)
            "Net_normal.weight": RNG.normal(0, 0.14, (32, 16)),
            "Net_trained.weight": uniform * 1.3,
            "Net_few.weight": RNG.uniform(-0.25, 0.25, (5, 16)),
        }
    )
    weights = step.tensors(collections=("weights",))
    fresh = {
        name for name, is_it in zip(weights.names, is_as_initialised(weights), strict=True) if is_it
    }
    assert fresh == {"Net_torch.weight", "Net_keras.weight"}


def test_first_weights() -> None:
    x = RNG.normal(size=(64, 100))
    weight = RNG.normal(0, 0.3, (50, 100))
    step = view(
        **{
            "Net_a.weight": weight,
            "a_input_0": x,
            "a_output_0": x @ weight.T,
            "gradient__Net_a.weight": weight,
            "Net_rnn.weight_hh_l0": np.zeros((8, 8)),
            "gradient__Net_rnn.weight_hh_l0": np.zeros((8, 8)),
            "Net_frozen.weight": weight,
        }
    )
    linear, recurrent = first_weights(step)
    assert linear.gain == pytest.approx(0.3 * 50**0.5, rel=0.05)
    assert linear.growth == pytest.approx(3.0, rel=0.1)
    assert np.isnan(linear.constant)
    assert (recurrent.constant, recurrent.outputs) == (0.0, 8)


def test_why_there_are_no_first_weights() -> None:
    step = view(**{"Net_a.weight": np.ones((2, 2)), "gradient__Net_a.weight": np.ones((2, 2))})
    with pytest.raises(Missing, match="no linear layer was saved"):
        first_weights(step)
