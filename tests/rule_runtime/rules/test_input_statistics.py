from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.input_statistics import InputStatistics
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import first_finding, make_run
from tests.rule_runtime.rules.runs import found_at

UNIT = np.random.default_rng(0).normal(0, 1, (64, 16))
UNIT = UNIT / np.sqrt((UNIT**2).mean())


class TestInputStatisticsContract(RuleContract):
    def make_rule(self) -> Rule:
        return InputStatistics()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        return {**healthy_tensors(step, worker), "Net_input_0": UNIT}

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "Net_input_0": 255 * UNIT}


def run(value: object, name: str = "Net_input_0", **options: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(4):
        trial.step(step, {"Net_fc.weight": np.eye(2), name: value}, **options)
    return trial


@pytest.mark.parametrize(
    ("scale", "fires"), [(1.0, False), (4.99, False), (5.01, True), (0.9e-3, True), (1.1e-3, False)]
)
def test_the_root_mean_square(scale: float, fires: bool) -> None:
    assert found_at(InputStatistics(), run(scale * UNIT)) == ([2, 3] if fires else [])


def test_a_large_mean_counts() -> None:
    trial = run(UNIT + 100)
    found = first_finding(InputStatistics(), trial)
    assert found.value == pytest.approx(100, rel=1e-3)
    assert "has a root mean square of 100, and should be between 0.001 and 5" in (found.sentence)


def test_inputs_that_do_not_vary() -> None:
    trial = run(np.full((8, 4), 0.5))
    found = first_finding(InputStatistics(), trial)
    assert found.sentence == "Net_input_0: is 0.5 in all 32 elements"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.full((8, 4), 40_000), "Net_input_0"),  # numbers of words
        (np.full(8, 1e4), "Net_input_0"),  # lengths
        (255 * UNIT, "fc_input_0"),  # not an input of the model
        (np.full((1, 1), 1e4), "Net_input_0"),
        (np.ones((8, 4)), "Net_input_0"),  # a mask
        (np.eye(4000)[:8], "Net_input_0"),  # one-hot rows
        (np.zeros((8, 4)), "Net_input_1"),  # a state that begins with zeros
    ],
)
def test_what_is_no_input_of_real_numbers(value: object, name: str) -> None:
    outcomes = run(value, name).outcomes(InputStatistics())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_an_input_of_zeros_says_nothing() -> None:
    assert found_at(InputStatistics(), run(np.zeros((8, 4)))) == [2, 3]


@pytest.mark.parametrize(
    ("layer", "taken", "fires"),
    [
        ("fc", 255 * UNIT, True),  # flattened, it is the same
        ("fc", UNIT, False),  # divided by 255 in forward()
        ("norm", 255 * UNIT, False),
    ],
)
def test_a_model_may_scale_its_inputs_by_itself(layer: str, taken: Any, fires: bool) -> None:
    trial = TrialBuilder()
    for step in range(4):
        weights = {"Net_fc.weight": np.eye(2), "Net_norm.weight": [1.0]}
        trial.step(step, {**weights, "Net_input_0": 255 * UNIT, f"{layer}_input_0": taken})
    assert bool(found_at(InputStatistics(), trial)) is fires


def test_steps_of_evaluation_are_not_judged() -> None:
    outcomes = run(255 * UNIT, mode=ModeKeys.EVAL).outcomes(InputStatistics())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_one_bad_batch_is_no_finding() -> None:
    trial = TrialBuilder()
    for step in range(12):
        scale = 255 if step % 3 else 1
        trial.step(step, {"Net_fc.weight": np.eye(2), "Net_input_0": scale * UNIT})
    assert not found_at(InputStatistics(), trial)


def test_inputs_of_layers_that_are_numbered_are_none_of_a_model() -> None:
    trial = make_run(
        *(
            {"dense2_weight": np.eye(2), "dense2_bias": [1.0], "dense2_input_0": 8 * UNIT}
            for _ in range(4)
        )
    )
    outcomes = trial.outcomes(InputStatistics())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


@pytest.mark.parametrize(
    ("first", "second", "fires"),
    [
        (0 * UNIT, UNIT, False),  # where an equation begins, and where it holds
        (0 * UNIT, 0 * UNIT, True),
        (255 * UNIT, 255 * UNIT, True),  # two small batches
        (20 * UNIT, UNIT, False),
        (UNIT, 255 * UNIT, False),
    ],
)
@pytest.mark.parametrize("others", [{}, {"Net_output_0": UNIT, "Net_output_1": UNIT}])
def test_all_calls_of_a_model_in_a_step_count(
    first: Any, second: Any, others: dict[str, Any], *, fires: bool
) -> None:
    trial = TrialBuilder()
    for step in range(4):
        calls = {"Net_input_0": first, "Net_input_1": second}
        trial.step(step, {"Net_fc.weight": np.eye(2), **calls, **others})
    assert found_at(InputStatistics(), trial) == ([2, 3] if fires else [])


def test_a_state_beside_the_first_input_is_none_of_another_call() -> None:
    state = np.linspace(-1, 1, 64 * 48).reshape(64, 48)
    for later, fires in ((UNIT, False), (0 * UNIT, True)):
        calls = {"Net_input_0": 0 * UNIT, "Net_input_1": state}
        calls |= {"Net_input_2": later, "Net_input_3": state}
        trial = make_run(*({"Net_fc.weight": np.eye(2), **calls} for _ in range(4)))
        assert bool(found_at(InputStatistics(), trial)) is fires


@pytest.mark.filterwarnings("error")
def test_numbers_whose_squares_are_too_large() -> None:
    assert found_at(InputStatistics(), run(1e200 * UNIT)) == [2, 3]


@pytest.mark.parametrize(
    ("weight", "is_found"), [([[2.0]], False), ([[2.0], [1.0]], True), ([[2.0, 1.0]], True)]
)
@pytest.mark.parametrize("layer", ["", "fc."])
def test_a_model_of_a_single_weight_needs_no_scale(
    weight: list[list[float]], layer: str, *, is_found: bool
) -> None:
    """One weight has one scale, which is as good as any other if the learning rate fits it."""
    trial = TrialBuilder()
    for step in range(5):
        own = {f"Linear_{layer}weight": weight, f"Linear_{layer}bias": [1.0]}
        trial.step(step, {**own, "Linear_input_0": np.linspace(0, 10, 100).reshape(-1, 1)})
    assert bool(found_at(InputStatistics(), trial)) is is_found


LARGE = 60 * UNIT
HIDDEN = 40 * UNIT[:, ::-1]
NORMALISED = {
    "Net_0.weight": np.eye(16),
    "Net_1.weight": np.ones(16),
    "Net_2.weight": np.eye(16),
    "Net_input_0": LARGE,
    "0_input_0": LARGE,
    "0_output_0": HIDDEN,
    "1_input_0": HIDDEN,
    "1_output_0": UNIT[::-1],
    "2_input_0": UNIT[::-1],
    "2_output_0": UNIT,
}


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, []),
        ({"1_input_0": HIDDEN + 1}, [2, 3]),  # as of a sum with a table of positions
        ({"1_output_0": HIDDEN}, [2, 3]),  # as of a PReLU
        ({"Net_1.weight": np.eye(16)}, [2, 3]),  # no normalisation layer
        ({"2_input_0": LARGE, "2_output_0": LARGE}, [2, 3]),  # another layer gets the input, too
        ({"Net_input_0": np.full((64, 16), 60.0), "0_input_0": np.full((64, 16), 60.0)}, [2, 3]),
        ({"Net_input_0": 1e-4 * UNIT, "0_input_0": 1e-4 * UNIT}, [2, 3]),
    ],
)
def test_the_size_of_large_inputs_has_no_effect_before_a_normalisation_layer(
    change: dict[str, Any], steps: list[int]
) -> None:
    trial = make_run(*({**NORMALISED, **change} for _ in range(4)))
    assert found_at(InputStatistics(), trial) == steps


@pytest.mark.parametrize(
    ("others", "fires"),
    [
        ({}, True),
        ({"head_input_0": UNIT}, False),  # it may be the head, and the input a hidden activation
        ({"Lit_input_0": UNIT}, False),  # the model is called
        ({"CrossEntropyLoss_input_0": UNIT}, True),
    ],
)
def test_a_script_may_call_the_only_part_of_a_model(others: dict[str, Any], *, fires: bool) -> None:
    trial = TrialBuilder()
    for step in range(4):
        inputs = {"net_input_0": 255 * UNIT, "net.0_input_0": 255 * UNIT}
        trial.step(step, {"Lit_net.0.weight": np.eye(2), **inputs, **others})
    assert bool(found_at(InputStatistics(), trial)) is fires


@pytest.mark.parametrize(
    ("tokens", "weight", "fires"),
    [
        (np.random.default_rng(0).random((4, 8)), "words/weights/words/embeddings:0", True),
        (np.linspace(0, 1, 32).reshape(4, 8), "words/weights/words/embeddings:0", True),
        (np.arange(32.0).reshape(4, 8), "words/weights/words/embeddings:0", False),
        (np.arange(32).reshape(4, 8), "words/weights/words/embeddings:0", False),
        # A layer that adds the table of its own Embedding to its input.
        (np.linspace(0, 1, 32).reshape(4, 8), "words/weights/words/places/embeddings:0", False),
    ],
)
def test_fractions_that_an_embedding_cuts_off(tokens: Any, weight: str, *, fires: bool) -> None:
    trial = TrialBuilder()
    trial.collections(weights=("/weights/",))
    for step in range(4):
        trial.step(step, {weight: np.eye(4), "words/inputs": np.float32(tokens)})
    assert found_at(InputStatistics(), trial) == ([2, 3] if fires else [])
    if fires:
        found = first_finding(InputStatistics(), trial)
        assert "an Embedding cuts them to whole numbers" in found.sentence
        assert "Dense" in found.remedy
