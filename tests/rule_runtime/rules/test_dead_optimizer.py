from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.dead_optimizer import DeadOptimizer
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, healthy_tensors
from tests.rule_runtime.outcomes import first_finding, make_run, reason_of
from tests.rule_runtime.rules.runs import found_at, with_maxima


class TestDeadOptimizerContract(RuleContract):
    def make_rule(self) -> Rule:
        return DeadOptimizer()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for saved in self.make_steps(worker):
            stuck = {"Net_fc.weight": healthy_tensors(0, worker)["Net_fc.weight"]}
            yield saved._replace(tensors={**saved.tensors, **stuck})


def run(
    num_steps: int = 12,
    *,
    interval: int = 1,
    moves: Iterable[str] = ("a",),
    gradients: Iterable[str] = ("a", "b"),
    zero: Iterable[str] = (),
) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(num_steps):
        tensors: dict[str, Any] = {}
        for name in ("a", "b"):
            tensors[f"Net_{name}.weight"] = np.arange(4.0) + (step if name in moves else 0)
            if name in gradients:
                value = 0.0 if name in zero else 1.0
                tensors[f"gradient/Net_{name}.weight"] = np.full(4, value)
        trial.step(step * interval, tensors, mode_step=step * interval)
    return trial


def test_fires_for_the_parameter_that_stands_still() -> None:
    trial = run()
    assert found_at(DeadOptimizer(), trial) == [5, 6, 7, 8, 9, 10, 11]
    found = first_finding(DeadOptimizer(), trial)
    assert found.tensor == "Net_b.weight"
    message = "and has not changed for 5 saved steps (1 of 2 parameters)"
    assert message in found.sentence
    assert "has a gradient, of mean size " in found.sentence
    assert found_at(DeadOptimizer(patience=2), trial)[0] == 2


def test_parameters_without_a_gradient_are_frozen_and_no_issue() -> None:
    assert not found_at(DeadOptimizer(), run(gradients=["a"]))
    assert not found_at(DeadOptimizer(), run(zero=["b"]))


def test_a_bias_before_a_normalisation_gets_nothing_but_rounding() -> None:
    trial = TrialBuilder()
    for step in range(12):
        tensors: dict[str, Any] = {}
        for name in ("weight", "bias"):
            value = np.full((4, 3), step) if name == "weight" else np.ones(4)
            tensors[f"Net_fc.{name}"] = value
            tensors[f"gradient/Net_fc.{name}"] = value * 0 + (1.0 if name == "weight" else 1e-8)
        trial.step(step, tensors, mode_step=step)
    assert not found_at(DeadOptimizer(), trial)


def test_scales_in_half_precision_may_stand_still_and_matrices_may_not() -> None:
    for name, is_found in (("scale", False), ("matrix", True)):
        trial = TrialBuilder()
        still = np.ones(4) if name == "scale" else np.linspace(-1, 1, 4)
        for step in range(12):
            tensors = {"Net_a.weight": np.full(4, step), "gradient/Net_a.weight": np.ones(4)}
            tensors["Net_b.weight"] = still.astype(np.float16)
            tensors["gradient/Net_b.weight"] = np.ones(4, np.float16)
            trial.step(step, tensors, mode_step=step)
        assert bool(found_at(DeadOptimizer(), trial)) is is_found, name


@pytest.mark.parametrize("interval", [1, 10])
def test_it_waits_longer_while_nothing_has_moved(interval: int) -> None:
    trial = run(27 * (10 // interval), interval=interval, moves=())
    assert found_at(DeadOptimizer(), trial)[0] == 250


def test_gradients_may_be_accumulated_while_every_step_is_saved() -> None:
    trial = TrialBuilder()
    for step in range(600):
        weight = {"Net_a.weight": [float(step // 64)], "gradient/Net_a.weight": [1.0]}
        trial.step(step, weight)
    assert not found_at(DeadOptimizer(), trial)


def test_what_has_changed_once_has_an_optimizer() -> None:
    trial = TrialBuilder()
    for step in range(20):
        b = 1.0 if step < 4 else 2.0 + step // 4
        tensors = {"Net_a.weight": [float(step)], "Net_b.weight": [b]}
        gradients = {"gradient/Net_a.weight": [1.0], "gradient/Net_b.weight": [1.0]}
        trial.step(step, {**tensors, **gradients})
    assert not found_at(DeadOptimizer(), trial)


def test_what_cannot_be_judged() -> None:
    trial = make_run({"Net_a.weight": [1.0], "gradient/Net_a.weight": [1.0]}, mode=ModeKeys.EVAL)
    trial.step(1, {"Net_a.weight": [1.0]})
    trial.step(2, {"gradient/Net_a.weight": [1.0]})
    assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(DeadOptimizer()))


def test_more_parameters_than_can_be_followed_do_not_break_it() -> None:
    trial = TrialBuilder()
    for step in range(3):
        names = [f"Net_{at}" for at in range(2100)]
        weights = {f"{name}.weight": [float(step)] for name in names}
        trial.step(step, {**weights, **{f"gradient/{n}.weight": [1.0] for n in names}})
    assert not found_at(DeadOptimizer(patience=1), trial)


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ({"gradient/Net_a.weight": [0.0]}, "all saved gradients are zero"),
        ({"gradient/Net_a.weight": [np.nan]}, "no saved gradient is finite"),
        ({}, "no tensor of the collection gradients was saved"),
        (None, "saved gradients have no abs_mean: save their values"),
    ],
)
def test_why_no_parameter_has_a_gradient(gradients: dict[str, object] | None, message: str) -> None:
    if gradients is None:
        trial = with_maxima("Net_a.weight", "gradient/Net_a.weight")
    else:
        trial = make_run({"Net_a.weight": [1.0], **gradients})
    assert reason_of(*trial.outcomes(DeadOptimizer())).startswith(message)


def converging(sizes: Iterable[float], *, num_moving: int) -> TrialBuilder:
    """Return a run in which one of two parameters moves only in the first steps."""
    trial = TrialBuilder()
    for step, size in enumerate(sizes):
        tensors: dict[str, Any] = {"Net_a.weight": np.full(4, float(step))}
        tensors["gradient/Net_a.weight"] = np.ones(4)
        tensors["Net_b.weight"] = np.arange(4.0) + min(step, num_moving)
        tensors["gradient/Net_b.weight"] = np.full(4, size)
        trial.step(step, tensors, mode_step=step)
    return trial


def test_a_parameter_that_never_moved_has_not_arrived() -> None:
    # The rest of the model learns without it, which may leave next to no gradient.
    trial = converging([3.0, *[1e-6] * 12], num_moving=0)
    assert found_at(DeadOptimizer(), trial)[0] == 5


def test_a_model_that_has_arrived_is_no_issue() -> None:
    trial = TrialBuilder()
    for step in range(0, 3000, 10):
        size = max(3.0 * 0.9 ** (step / 10), 3e-7)
        weight = {"Net_a.weight": [max(size, 1e-5)], "gradient/Net_a.weight": [size]}
        trial.step(step, weight, mode_step=step)
    outcomes = trial.outcomes(DeadOptimizer())
    assert not any(isinstance(o, IssueFound) for o in outcomes)
    assert isinstance(outcomes[-1], Passed)


def test_a_training_that_goes_back_and_forth_is_no_dead_optimiser() -> None:
    # Every second step it comes back to the very same numbers, and those are what is saved.
    trial = TrialBuilder()
    for step in range(0, 1200, 10):
        value = max(1.0 - step / 300, 0.0)
        tensors = {name: [1.0 + value] for name in ("Net_a.weight", "Net_a.bias")}
        gradients = {f"gradient/{name}": [1.0] for name in tensors}
        trial.step(step, {**tensors, **gradients}, mode_step=step)
    assert not found_at(DeadOptimizer(), trial)
