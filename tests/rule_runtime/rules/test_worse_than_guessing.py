from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.worse_than_guessing import WorseThanGuessing
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.runs import found_at, judged_at

RNG = np.random.default_rng(0)
SCORES = RNG.normal(0, 10, (32, 10))
CLASSES = np.arange(32) % 10
GUESS = math.log(10)


def run(
    name: str,
    loss_of: Callable[[int], float],
    scores: Any,
    targets: Any,
    *,
    mode: ModeKeys = ModeKeys.TRAIN,
    steps: int = 300,
) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(0, steps, 10):
        given = targets(step) if callable(targets) else targets
        inputs = {f"{name}_input_0": scores, f"{name}_input_1": given}
        loss = np.float64(loss_of(step))
        trial.step(step, {**inputs, f"{name}_output_0": loss}, mode=mode, mode_step=step)
    return trial


class TestWorseThanGuessingContract(RuleContract):
    def make_rule(self) -> Rule:
        return WorseThanGuessing()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        inputs = {"CrossEntropyLoss_input_0": SCORES, "CrossEntropyLoss_input_1": CLASSES}
        return {**healthy_tensors(step, worker), **inputs}

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for step in range(0, 200, 5):
            inputs = {"MSELoss_input_0": SCORES, "MSELoss_input_1": SCORES}
            tensors = {**healthy_tensors(step, worker), **inputs, "MSELoss_output_0": 300.0}
            yield SavedStep(step, tensors, time=1.5e9 + step)


@pytest.mark.parametrize(
    ("name", "scores", "targets", "constant"),
    [
        ("CrossEntropyLoss", SCORES, CLASSES, GUESS),
        ("NextLetterLoss", SCORES, CLASSES, GUESS),
        ("MSELoss", SCORES[:, :1], 200 + 5 * SCORES[:, :1], 25 * SCORES[:, :1].var()),
        ("L1Loss", SCORES[:, :1], 200 + 5 * SCORES[:, :1], 5 * SCORES[:, :1].std()),
    ],
)
def test_a_loss_far_above_that_of_a_constant_is_found_once_there_was_time(
    name: str, scores: Any, targets: Any, constant: float
) -> None:
    assert not found_at(WorseThanGuessing(), run(name, lambda _: 1.49 * constant, scores, targets))
    found = found_at(WorseThanGuessing(), run(name, lambda _: 1.51 * constant, scores, targets))
    assert found == list(range(120, 300, 10))


def test_a_batch_of_one_is_judged_with_those_before_it() -> None:
    def of_one(step: int) -> Any:
        return np.array([[200.0 if step % 20 else 190.0]])

    trial = run("MSELoss", lambda _: 36.0, np.full((1, 1), 195.0), of_one)
    assert not found_at(WorseThanGuessing(), trial)  # 36 < 1.5 * 25
    assert found_at(
        WorseThanGuessing(), run("MSELoss", lambda _: 39.0, np.full((1, 1), 195.0), of_one)
    )


def test_a_loss_that_falls_is_not_reported() -> None:
    rng = np.random.default_rng(0)

    def falls(step: int) -> float:
        return 5 * GUESS * math.exp(-step / 300)

    def scatters(_: int) -> float:
        return 5 * GUESS * rng.uniform(0.8, 1.2)

    assert not found_at(WorseThanGuessing(), run("CrossEntropyLoss", falls, SCORES, CLASSES))
    assert found_at(WorseThanGuessing(), run("CrossEntropyLoss", scatters, SCORES, CLASSES))


def test_what_fell_on_its_way_is_found_once_it_stands_still() -> None:
    targets = 12 + SCORES[:, :1] / SCORES[:, :1].std()
    steps = 1000

    def stands_still(step: int) -> float:
        return max(100 * math.exp(-step / 50), 3.0)

    trial = run("MSELoss", stands_still, SCORES[:, :1], targets, steps=steps)
    found = found_at(WorseThanGuessing(), trial)
    assert found
    assert 250 <= min(found) <= 500
    assert max(found) == steps - 10


@pytest.mark.parametrize(
    ("name", "scores", "targets", "loss"),
    [
        ("BCEWithLogitsLoss", SCORES[:, 0], CLASSES % 2.0, 50.0),  # classes may be weighted
        ("CrossEntropyLoss", 0.1 * SCORES, CLASSES, 32 * 2.3),  # a sum
        ("MSELoss", 0.01 * SCORES, 0.01 * SCORES, 320 * 0.009),
        ("CrossEntropyLoss", 0.1 * SCORES, np.full(32, -100), 9 * 2.3),  # a sum, most is padding
        ("CenterLoss", 0.01 * SCORES, CLASSES, 9.0),  # features, not scores
        ("MSELoss", SCORES, np.ones((32, 10)), 50.0),  # least squares of an adversary
        ("TripletLoss", SCORES, SCORES, 50.0),
    ],
)
def test_where_nobody_knows_what_a_constant_gives(
    name: str, scores: Any, targets: Any, loss: float
) -> None:
    assert not found_at(WorseThanGuessing(), run(name, lambda _: loss, scores, targets))


def test_a_sum_is_known_as_one_once_targets_vary() -> None:
    def after_the_first(step: int) -> Any:
        return np.ones((32, 10)) if step == 0 else SCORES

    trial = run("MSELoss", lambda _: 320 * 50.0, SCORES, after_the_first)
    assert not found_at(WorseThanGuessing(), trial)


def test_losses_of_validation_and_losses_without_inputs_are_not_judged() -> None:
    validation = run("NLLLoss", lambda _: 50.0, SCORES, CLASSES, mode=ModeKeys.EVAL)
    assert not judged_at(WorseThanGuessing(), validation)
    trial = make_run({"CrossEntropyLoss_output_0": np.float64(50)})
    (outcome,) = trial.outcomes(WorseThanGuessing())
    assert isinstance(outcome, NotEvaluated)


@pytest.mark.parametrize(
    ("name", "loss", "inputs", "reason"),
    [
        ("BCELoss", 0.7, (np.full(32, 0.5), CLASSES % 2), "no baseline is known for BCE"),
        ("MSELoss", 9e9, (SCORES, SCORES), "no baseline is known for MSELoss_output_0"),
        ("MSELoss", 1.0, (), "no loss was saved with its inputs"),
    ],
)
def test_why_it_is_not_evaluated(
    name: str, loss: float, inputs: tuple[Any, ...], reason: str
) -> None:
    trial = TrialBuilder()
    given = {f"{name}_input_{number}": value for number, value in enumerate(inputs)}
    trial.step(0, {**given, f"{name}_output_0": np.float64(loss)})
    assert reason_of(trial.outcomes(WorseThanGuessing())[0]).startswith(reason)
