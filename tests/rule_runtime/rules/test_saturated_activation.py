from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.saturated_activation import SaturatedActivation
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import evidence_of, letters, make_run, reason_of
from tests.rule_runtime.rules.runs import found_at
from tests.tables import table

TANH, SIGMOID = "net.tanh_input_0", "net.sigmoid_input_0"


class TestSaturatedActivationContract(RuleContract):
    def make_rule(self) -> Rule:
        return SaturatedActivation()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        rng = np.random.default_rng(100 * worker + step)
        inputs = {name: rng.normal(0, 2, (16, 8)).astype(np.float32) for name in (TANH, SIGMOID)}
        return {**healthy_tensors(step, worker), **inputs}

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, TANH: tensors[TANH] * 0 + 12, SIGMOID: tensors[SIGMOID] - 30}


def outcome_of(
    value: Any,
    *,
    name: str = TANH,
    mode: ModeKeys = ModeKeys.TRAIN,
    save_values: bool = True,
    **parameters: Any,
) -> Any:
    trial = TrialBuilder()
    trial.step(3, {name: value}, mode=mode, save_values=save_values)
    (outcome,) = trial.outcomes(SaturatedActivation(**parameters))
    return outcome


def with_saturated(num_saturated: int, value: float = 20.0) -> np.ndarray[Any, Any]:
    inputs = np.zeros((32, 10))
    inputs[:, :num_saturated] = value
    return inputs


def within(num_rows: int) -> np.ndarray[Any, Any]:
    """Return inputs of 100 rows of which some lie within the limits."""
    return np.repeat(np.where(np.arange(100) < num_rows, 0.0, 50.0)[:, None], 4, axis=1)


def layer(value: float) -> np.ndarray[Any, Any]:
    return np.full((4, 3), value)


AT_SIGMOID = {"name": SIGMOID}
TWO_PERCENT = {"threshold_inactivity": 2}


@table(
    "inputs, options, letter",
    {
        "half of the units": (with_saturated(5), {}, "P"),
        "more than half": (with_saturated(6), {}, "!"),
        "all units": (with_saturated(10), {}, "!"),
        "within the upper limit of tanh": (layer(9.4998), {}, "P"),
        "at the upper limit of tanh": (layer(9.4999), {}, "!"),
        "within the lower limit of tanh": (layer(-9.4998), {}, "P"),
        "at the lower limit of tanh": (layer(-9.4999), {}, "!"),
        "within the upper limit of sigmoid": (layer(16.9999), AT_SIGMOID, "P"),
        "at the upper limit of sigmoid": (layer(16.99999), AT_SIGMOID, "!"),
        "within the lower limit of sigmoid": (layer(-22.9999), AT_SIGMOID, "P"),
        "at the lower limit of sigmoid": (layer(-23.0), AT_SIGMOID, "!"),
        "infinite": (layer(np.inf), {}, "!"),
        "not a number": (layer(np.nan), {}, "P"),
        "no row within the limits": (within(0), TWO_PERCENT, "!"),
        "1 % within the limits": (within(1), TWO_PERCENT, "!"),
        "2 % within the limits, the threshold": (within(2), TWO_PERCENT, "P"),
        "extremes within the limits need no values": (layer(9.0), {"save_values": False}, "P"),
        "extremes outside of them do": (layer(99.0), {"save_values": False}, "-"),
        "in evaluation": (with_saturated(9), {"mode": ModeKeys.EVAL}, "."),
        "without modes": (with_saturated(9), {"mode": ModeKeys.GLOBAL}, "!"),
    },
)
def test_more_than_half_of_the_units_must_be_saturated(
    inputs: Any, options: dict[str, Any], letter: str
) -> None:
    assert letters([outcome_of(inputs, **options)]) == letter


def test_the_evidence() -> None:
    trial = TrialBuilder(num_workers=2)
    trial.step(3, {TANH: with_saturated(6), SIGMOID: with_saturated(9, -99.0)}, worker="worker_1")
    trial.step(3, {TANH: with_saturated(7)}, worker="worker_0")
    evidence = evidence_of(*trial.outcomes(SaturatedActivation()))
    assert (evidence.tensor, evidence.worker) == (SIGMOID, "worker_1")
    assert (evidence.measure, evidence.value, evidence.threshold) == (
        "saturated_units_percent",
        90,
        50,
    )
    assert evidence.sentence == (
        f"{SIGMOID}: 90 % of the units have less than 1 % of their inputs between -23 and 17; "
        "more than 50 %"
    )


def test_the_collection_identifies_the_layer() -> None:
    trial = make_run(
        {"gate_input_0": np.full((4, 3), 12.0), "other": np.full((4, 3), 99.0)},
        {"act_input_0": np.full((4, 3), 12.0)},
        collections={"sigmoid_input": ("^gate_input_",), "tanh_input": ("^act_input_",)},
    )
    passed, issue = trial.outcomes(SaturatedActivation())
    assert isinstance(passed, Passed)
    assert isinstance(issue, IssueFound)


def test_a_tensor_that_is_neither_is_not_judged() -> None:
    reason = reason_of(
        outcome_of(np.full((4, 3), 99.0), name="gate_input_0", tensor_regex=("gate",))
    )
    assert "no values of inputs of tanh or sigmoid layers were saved" in reason
    outcome = outcome_of(np.full((4, 3), 99.0), name="Tanh_gate", tensor_regex=("gate",))
    assert isinstance(outcome, IssueFound)


@pytest.mark.parametrize("axis", [1, 2])
def test_of_three_axes_either_may_be_that_of_the_units(axis: int) -> None:
    value = np.moveaxis(np.zeros((4, 6, 8)), axis, 0)
    value[: len(value) - 1] = 99
    assert isinstance(outcome_of(np.moveaxis(value, 0, axis)), IssueFound)


def recurrent(scale: float, *, mode_step: int = 0, threshold_slope: float = 0.07) -> Any:
    """Judge a tanh layer whose weights have a standard deviation of `scale`."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, scale, (48, 48))
    state = np.zeros((64, 48))
    states = []
    for _ in range(8):
        state = np.tanh(rng.normal(0, scale, (64, 48)) + state @ weights)
        states.append(state)
    trial = TrialBuilder()
    tensors = {"Net_layers.rnn.weight_hh_l0": weights, "layers.rnn_output_0": np.stack(states, 1)}
    trial.step(mode_step, tensors, mode_step=mode_step, save_values=False)
    (outcome,) = trial.outcomes(SaturatedActivation(threshold_slope=threshold_slope))
    return outcome


def test_a_recurrent_layer_must_not_be_saturated_before_it_is_trained() -> None:
    evidence = evidence_of(recurrent(5.0))
    assert evidence.tensor == "layers.rnn_output_0"
    assert evidence.measure == "mean_slope"
    assert evidence.value < 0.07
    assert isinstance(recurrent(48**-0.5), Passed)
    # One that learned to be sure of its states is healthy.
    assert isinstance(recurrent(5.0, mode_step=5), NotEvaluated)
    assert isinstance(recurrent(5.0, threshold_slope=0.0), NotEvaluated)


def test_what_is_not_recurrent_or_not_bounded_has_no_slope_of_tanh() -> None:
    for name, value in (("gate_output_0", 1.0), ("rnn_output_0", 30.0)):
        trial = TrialBuilder()
        signs = value * np.sign(np.random.default_rng(0).normal(size=(8, 4)))
        trial.step(0, {"Net_rnn.weight_hh_l0": np.ones((4, 4)), name: signs})
        (outcome,) = trial.outcomes(SaturatedActivation(threshold_slope=0.07))
        assert isinstance(outcome, NotEvaluated)


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def test_the_reason_names_the_collections() -> None:
    trial = make_run({"act_input_0": np.full((8, 4), 99.0)})
    reason = reason_of(*trial.outcomes(SaturatedActivation(collection_names=("gates",))))
    assert "(collections tanh_input, sigmoid_input, gates)" in reason


@pytest.mark.parametrize("place", ["1_{}_0", "Net/sigmoid_{}/0"])
def test_a_last_sigmoid_may_be_sure_of_its_answers(place: str) -> None:
    answers = np.where(np.arange(32) % 2, 30.0, -30.0)[:, None]
    tensors = {
        place.format("input"): answers,
        place.format("output"): sigmoid(answers),
        "BCELoss_input_0": sigmoid(answers)[:, 0],  # squeezed
    }
    trial = make_run(tensors, collections={"sigmoid_input": ("^1_input_0$", "sigmoid_input")})
    assert trial.outcomes(SaturatedActivation(check_outputs=False)) == [Passed()]
    assert found_at(SaturatedActivation(), trial)


def test_a_sigmoid_before_others_is_judged() -> None:
    trial = TrialBuilder()
    trial.collections(sigmoid_input=("^1_input_0$",))
    hidden = np.full((32, 4), 30.0)
    tensors = {
        "1_input_0": hidden,
        "1_output_0": sigmoid(hidden),
        "BCELoss_input_0": np.linspace(0.1, 0.9, 32),
    }
    trial.step(0, tensors)
    assert found_at(SaturatedActivation(check_outputs=False), trial)
