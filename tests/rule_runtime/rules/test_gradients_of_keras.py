"""Rules that look at a weight together with its gradient, with the names of Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.facts.tensor_changes import frozen_rows
from rule_runtime.rules.dead_optimizer import DeadOptimizer
from rule_runtime.rules.missing_gradient import MissingGradient
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.rules.weight_update_ratio import UnchangedTensor, WeightUpdateRatio
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import Tensors
from tests.rule_runtime.outcomes import evidence_of, first_finding, make_run
from tests.rule_runtime.rules.keras_names import COLLECTIONS, KerasContract
from tests.rule_runtime.rules.runs import found_at

FC, CONV = "fc/weights/fc/kernel:0", "conv1/weights/conv1/kernel:0"


class TestMissingGradientContract(KerasContract):
    def make_rule(self) -> Rule:
        return MissingGradient(ignore_regex=("frozen",))

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "gradients/conv1/kernelGrad": np.zeros((8, 4))}


def run(tensors_of: Callable[[int], dict[str, Any]], num_steps: int = 12) -> TrialBuilder:
    return make_run(
        *(tensors_of(step) for step in range(num_steps)),
        collections={
            "weights": COLLECTIONS["weights"],
            "biases": COLLECTIONS["biases"],
            "gradients": COLLECTIONS["gradients"],
        },
    )


def weights(step: int, *moves: str) -> dict[str, Any]:
    kernels = {"conv1": CONV, "fc": FC}
    return {kernel: np.arange(4.0) + step * (name in moves) for name, kernel in kernels.items()}


def gradients(**sizes: float) -> dict[str, Any]:
    return {f"gradients/{name}/kernelGrad": np.full(4, size) for name, size in sizes.items()}


def outcome_of(tensors: dict[str, Any]) -> Outcome:
    (outcome,) = run(lambda _: tensors, 1).outcomes(VanishingGradient())
    return outcome


def sentence(rule: Rule, trial: TrialBuilder) -> str:
    return first_finding(rule, trial).sentence


def test_a_kernel_that_stands_still_is_the_optimiser_s_and_not_the_gradient_s() -> None:
    trial = run(lambda step: weights(step, "conv1") | gradients(conv1=1.0, fc=0.5))
    message = "has a gradient, of mean size 0.5, and has not changed for 5 saved steps"
    assert sentence(DeadOptimizer(), trial) == f"{FC}: {message} (1 of 2 parameters)"
    assert not found_at(MissingGradient(), trial)
    trial = run(lambda step: weights(step, "conv1") | gradients(conv1=1.0))
    assert not found_at(DeadOptimizer(), trial)


def test_what_layers_count_by_themselves_is_no_step_of_the_optimiser() -> None:
    """Gradients are accumulated over 64 steps, and a normalisation counts on in each."""

    def tensors(step: int) -> dict[str, Any]:
        state = {"bn/weights/bn/moving_mean:0": np.full(4, float(step))}
        return weights(step // 64, "conv1", "fc") | gradients(conv1=1.0, fc=1.0) | state

    assert not found_at(DeadOptimizer(), run(tensors, 300))
    still = run(lambda step: tensors(step) | weights(0), 260)
    assert found_at(DeadOptimizer(), still)[0] == 250


def test_a_gradient_of_zeros_is_told_from_none() -> None:
    trial = run(lambda step: weights(step, "fc") | gradients(conv1=0.0, fc=1.0))
    message = "has had a gradient of exactly zero for 10 saved steps, as 1 of 2 weights"
    assert sentence(MissingGradient(), trial) == f"{CONV}: {message}"
    trial = run(lambda step: weights(step, "fc") | gradients(fc=1.0))
    assert "has had no gradient for 10 saved steps" in sentence(MissingGradient(), trial)


def test_one_of_several_gradients_of_a_step_suffices() -> None:
    """As of a discriminator, which learns from what is real and from what is made up."""
    several = {f"gradients/conv1/kernelGrad_{at}": np.full(4, float(at)) for at in (0, 1)}
    trial = run(lambda step: weights(step, "conv1", "fc") | several | gradients(fc=1.0))
    assert not found_at(MissingGradient(), trial)
    assert not found_at(DeadOptimizer(), trial)


@pytest.mark.parametrize("rule", [UnchangedTensor(tensor_regex=("kernel",)), WeightUpdateRatio()])
def test_a_base_that_is_frozen_is_no_issue(rule: Rule) -> None:
    frozen = run(lambda step: weights(step, "fc") | gradients(fc=1.0))
    learning = run(lambda step: weights(step, "fc") | gradients(fc=1.0, conv1=1.0))
    for trial, is_found in ((frozen, False), (learning, True)):
        found = [o.evidence for o in trial.outcomes(rule) if isinstance(o, IssueFound)]
        assert any(evidence.tensor == CONV for evidence in found) is is_found


def test_gradients_of_a_session_of_tensorflow_1_tell_nothing() -> None:
    gradient = {"gradients/fc/MatMul_grad/tuple/control_dependency_1:0": np.ones(4)}
    trial = make_run(
        *({"conv1/kernel:0": np.ones(4), "fc/kernel:0": np.ones(4), **gradient} for _ in range(12)),
        collections={"weights": ("kernel:0$",), "gradients": ("^gradients/",)},
    )
    message = "no gradient is named after its parameter: name them as the hook does, such as "
    message += "gradient/fc.weight"
    assert set(trial.outcomes(MissingGradient())) == {NotEvaluated(message)}
    assert set(trial.outcomes(DeadOptimizer())) == {NotEvaluated(message)}
    view = trial.views()[0]
    assert not frozen_rows(view, view.tensors()).any()
    assert found_at(UnchangedTensor(tensor_regex=("kernel:0",)), trial)


@pytest.mark.parametrize(
    ("bias", "weight", "shape"),
    [
        ("gradients/conv/biasGrad_1", "gradients/conv/kernelGrad_1", (3, 3, 1, 4)),
        ("gradients/sep/biasGrad", "gradients/sep/pointwise_kernelGrad", (1, 1, 8, 4)),
        ("gradients/bn/betaGrad", "gradients/bn/gammaGrad", (4,)),
    ],
)
def test_what_is_added_ahead_of_a_normalisation(
    bias: str, weight: str, shape: tuple[int, ...]
) -> None:
    for size, kind in ((1e-3, Passed), (1e-9, IssueFound)):
        assert isinstance(outcome_of({bias: np.full(4, 1e-10), weight: np.full(shape, size)}), kind)


def test_of_two_layers_of_one_name_the_one_with_a_bias_may_be_the_second() -> None:
    """The first bias is that of the second kernel, by the layers' names."""
    gradient_of = {"dense/kernelGrad": 1e-9, "dense/kernelGrad_1": 1e-3, "dense/biasGrad": 1e-10}
    shapes = {"kernel": (2, 4), "bias": (4,)}
    tensors: dict[str, Any] = {}
    for name, size in gradient_of.items():
        tensors[f"gradients/{name}"] = np.full(shapes[name[6:].partition("Grad")[0]], size)
    for layer, kind in (("dense", "kernel"), ("dense_1", "kernel"), ("dense_1", "bias")):
        tensors[f"{layer}/weights/dense/{kind}:0"] = np.ones(shapes[kind])
    assert evidence_of(outcome_of(tensors)).tensor == "gradients/dense/kernelGrad"
