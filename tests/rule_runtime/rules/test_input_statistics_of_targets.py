"""Targets that were not scaled."""

from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.engine.outcome import Passed, RuleStatus, status_details
from rule_runtime.rules.input_statistics import InputStatistics
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

NUMBERS = np.random.default_rng(0).normal(0, 1, (64, 1))


def run(name: str, outputs: float, targets: float) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(losses=("Loss_output_0$",))
    for step in range(0, 200, 10):
        tensors = {
            f"{name}_input_0": outputs * NUMBERS,
            f"{name}_input_1": targets * NUMBERS[::-1],
            f"{name}_output_0": np.float64(1),
        }
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"])
def test_targets_that_outputs_do_not_get_to(name: str) -> None:
    trial = run(name, 3.0, 1000.0)
    outcomes = trial.outcomes(InputStatistics())
    advised = [at for at, of in enumerate(outcomes) if isinstance(of, Passed) and of.advice]
    assert advised[0] == 7  # the third from step 50 on
    state = trial.evaluate(InputStatistics())
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    assert "targets with a root mean square of 914, where outputs are 2.74" in state.counts.advice
    assert "Scale the targets" in status_details("InputStatistics", state)


def test_large_inputs_are_advice_only_if_all_losses_are_regressions() -> None:
    for name, is_issue in (("MSELoss", False), ("CrossEntropyLoss", True)):
        trial = TrialBuilder()
        trial.collections(losses=("Loss_output_0$",))
        for step in range(4):
            tensors = {
                "Net_fc.weight": np.ones((3, 4)),
                "Net_input_0": 100 * NUMBERS.reshape(16, 4),
            }
            trial.step(step, {**tensors, f"{name}_output_0": np.float64(1)})
        state = trial.evaluate(InputStatistics())
        assert (state.status is RuleStatus.ISSUES_FOUND) is is_issue
        assert bool(state.counts.advice) is not is_issue


def test_constant_inputs_are_an_issue_next_to_advice_about_targets() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("Loss_output_0$",))
    for step in range(0, 200, 10):
        tensors = {
            "Net_fc.weight": np.ones((3, 4)),
            "Net_input_0": np.full((16, 4), 100.0),
            "fc_input_0": np.full((16, 4), 100.0),
            "MSELoss_input_0": 3.0 * NUMBERS,
            "MSELoss_input_1": 1000.0 * NUMBERS[::-1],
            "MSELoss_output_0": np.float64(1),
        }
        trial.step(step, tensors, mode_step=step)
    assert found_at(InputStatistics(), trial)[-1] == 190


@pytest.mark.parametrize(
    ("name", "outputs", "targets"),
    [
        ("MSELoss", 1.0, 40.0),  # not that large
        ("MSELoss", 110.0, 1000.0),  # on their way
        ("MSELoss", 1000.0, 1.0),
        ("PoissonNLLLoss", 3.0, 1000.0),  # logarithms of them
    ],
)
def test_targets_that_may_be_learned(name: str, outputs: float, targets: float) -> None:
    assert not found_at(InputStatistics(), run(name, outputs, targets))


@pytest.mark.parametrize("outputs", [1e5, np.inf, np.nan])
def test_outputs_that_overshoot_need_no_patience(outputs: float) -> None:
    outcomes = run("MSELoss", outputs, 1000.0).outcomes(InputStatistics())
    assert isinstance(outcomes[0], Passed)
    assert "they are not scaled. Scale the targets" in outcomes[0].advice
