from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.rules.runs import found_at

ROWS = 45
OUTPUTS = np.random.default_rng(0).normal(0, 1, ROWS)
STEPS = (0, 100, 200, 300)


class TestLossInputMismatchContract(RuleContract):
    def make_rule(self) -> Rule:
        return LossInputMismatch()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        inputs = {"MSELoss_input_0": OUTPUTS, "MSELoss_input_1": OUTPUTS + 1}
        return {**healthy_tensors(step, worker), **inputs, "MSELoss_output_0": 1.0}

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for step in range(0, 200, 5):
            tensors = {**self.make_tensors(step, worker), "MSELoss_input_1": np.arange(ROWS) % 5.0}
            yield SavedStep(step, tensors, time=1.5e9 + step)


def run(name: str, outputs: Any, targets: Any, *, labels: Any = None) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(0, 100, 10):
        tensors = {f"{name}_input_0": outputs, f"{name}_output_0": np.float64(1)}
        tensors |= {f"{name}_input_1": targets}
        tensors |= {} if labels is None else {"labels": labels}
        trial.step(step, tensors, mode_step=step)
    return trial


def first_finding(trial: TrialBuilder) -> IssueFound:
    return next(o for o in trial.outcomes(LossInputMismatch()) if isinstance(o, IssueFound))


@pytest.mark.parametrize("name", ["MSELoss", "DistanceLoss", "Loss"])
@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)])
def test_numbers_of_classes_are_no_amounts(name: str, shape: tuple[int, ...]) -> None:
    labels = np.arange(ROWS) % 5
    trial = run(name, OUTPUTS.reshape(shape), labels.reshape(shape) * 1.0, labels=labels)
    assert "numbers of 5 classes" in first_finding(trial).evidence.sentence
    assert found_at(LossInputMismatch(), run(name, OUTPUTS, labels * 1.0))  # by its targets


@pytest.mark.parametrize("name", ["PoissonNLLLoss", "TripletLoss"])
def test_losses_that_are_no_distance_may_have_numbers_of_classes(name: str) -> None:
    labels = np.arange(ROWS) % 5
    assert not found_at(LossInputMismatch(), run(name, OUTPUTS, labels * 1.0, labels=labels))


def test_targets_that_are_not_the_labels_may_be_amounts() -> None:
    labels = np.arange(ROWS) % 5
    assert not found_at(LossInputMismatch(), run("MSELoss", OUTPUTS, OUTPUTS, labels=labels))
    scores = run("MSELoss", np.zeros((ROWS, 5)), np.eye(5)[labels], labels=labels)
    assert not found_at(LossInputMismatch(), scores)


@pytest.mark.parametrize(("columns", "is_found"), [(1, True), (2, False), (20, False)])
def test_places_are_no_numbers_of_classes(columns: int, *, is_found: bool) -> None:
    """Corners of boxes are whole numbers as well."""
    places = np.random.default_rng(1).integers(0, 12, (512, columns)).astype(np.float32)
    trial = run("MSELoss", np.zeros((512, columns)), places)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


@pytest.mark.parametrize(("metric", "is_found"), [("train-rmse", True), ("train-mlogloss", False)])
def test_boosted_trees_learn_classes_with_a_loss_of_classes(metric: str, *, is_found: bool) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^train-",))
    for step in range(10):
        tensors = {"labels": np.arange(ROWS) % 3 * 1.0, metric: np.float64(1)}
        trial.step(step, tensors, mode=ModeKeys.GLOBAL)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


def test_what_cannot_be_judged() -> None:
    trial = make_run({"MSELoss_output_0": [77.0]})
    trial.step(1, {"MSELoss_input_0": [77.0], "MSELoss_output_0": [1.0]}, mode=ModeKeys.EVAL)
    trial.step(2, {"labels": [1.0]})
    outcomes = trial.outcomes(LossInputMismatch())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


# By values ----------------------------------------------------------------------------------------


def run_of_values(loss: Callable[[Any, Any], Any], **beside: Any) -> TrialBuilder:
    rng, trial = np.random.default_rng(0), TrialBuilder()
    for step in STEPS:
        o, t = rng.normal(size=(40, 1)), rng.normal(size=(40, 1))
        given = {"OwnLoss_input_0": o, "OwnLoss_input_1": t, **beside}
        trial.step(step, {**given, "OwnLoss_output_0": np.float64(loss(o, t))}, mode_step=step)
    return trial


def test_a_wrong_formula_is_found_at_the_second_step_with_values() -> None:
    trial = run_of_values(lambda o, t: ((o - t.T) ** 2).mean())
    assert found_at(LossInputMismatch(), trial) == [100, 200, 300]
    found = first_finding(trial).evidence
    assert "the mean square of the differences of every output from every" in found.sentence
    assert not found_at(LossInputMismatch(), run_of_values(lambda o, t: ((o - t) ** 2).mean()))


def test_beside_another_loss_means_may_be_compared() -> None:
    def loss(o: Any, t: Any) -> Any:
        return (o - t).mean() ** 2

    assert found_at(LossInputMismatch(), run_of_values(loss))
    both = run_of_values(loss, MSELoss_output_0=np.float64(1))
    assert not found_at(LossInputMismatch(), both)


# Losses that the hook observed -------------------------------------------------------------------


BITS = np.tile([0.0, 1.0], 32)
NOISE = np.repeat([-0.2, 0.2], 32)


def observed(
    loss: Callable[[float], float],
    agreement: Callable[[float], float],
    level: Callable[[float], float] = lambda _: 0.5,
) -> TrialBuilder:
    """Return a run of a loss of the script's own; all are functions of the share that is over.

    `agreement` is the slope of the outputs over the targets, `level` the mean of the outputs.
    """
    trial = TrialBuilder()
    for step in range(30):
        share = step / 30
        outputs = level(share) + NOISE + 0.2 * agreement(share) * (2 * BITS - 1)
        error = np.square(outputs - BITS).mean()
        tensors = {"Loss_input_0": outputs, "Loss_input_1": BITS, "Loss_standard/MSELoss": error}
        trial.step(step, {**tensors, "Loss_output_0": np.float64(loss(share))}, mode_step=step)
    return trial


@pytest.mark.parametrize(
    ("loss", "agreement", "sentence"),
    [
        (lambda x: 1 - x, lambda x: x, ""),
        (lambda x: 1 + x, lambda x: -x, ""),
        (lambda x: 1 - x, lambda _: -0.5, ""),
        (lambda x: 1 - x, lambda x: 1 - x / 2, ""),
        (lambda x: 1 - x, lambda x: -x, "its sign is wrong"),
        (lambda x: 1 - x, lambda x: 0.3 - x, "its sign is wrong"),
    ],
)
def test_a_loss_that_falls_with_worse_outputs_has_the_wrong_sign(
    loss: Any, agreement: Any, sentence: str
) -> None:
    trial = observed(loss, agreement)
    found = found_at(LossInputMismatch(), trial)
    assert bool(found) is bool(sentence)
    if sentence:
        assert sentence in first_finding(trial).evidence.sentence


def test_an_overlap_loss_may_first_raise_all_outputs() -> None:
    """The distance to targets of 0 then grows while the loss falls."""
    trial = observed(lambda x: 1 - x, lambda x: x / 10, level=lambda x: 0.25 + x / 2)
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize("sign", [1, -1])
def test_minus_a_usual_loss_has_the_wrong_sign(sign: int) -> None:
    trial = TrialBuilder()
    for step in range(30):
        error = np.float64(1 + step)
        tensors = {"Loss_input_0": BITS, "Loss_input_1": 1 - BITS, "Loss_standard/MSELoss": error}
        trial.step(step, {**tensors, "Loss_output_0": sign * error}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is (sign < 0)
    if sign < 0:
        assert "is minus MSELoss" in first_finding(trial).evidence.sentence


@pytest.mark.parametrize(
    ("spread", "total", "num_steps", "is_outweighed"),
    [
        (0.3, 25.6, 20, True),
        (0.3, 25.6, 19, False),
        (0.3, 0.9, 30, False),
        (3.0, 25.6, 30, False),  # the model fits its data
        (0.3, None, 30, False),
    ],
)
def test_advice_if_other_terms_outweigh_a_loss(
    spread: float, total: float | None, num_steps: int, *, is_outweighed: bool
) -> None:
    trial = TrialBuilder()
    targets = spread * np.tile([-1.0, 1.0], 32)
    pair = {"MSELoss_input_0": np.full(64, 0.1), "MSELoss_input_1": targets}
    sums = {} if total is None else {"Loss_minimised/MSELoss_0": np.float64(total)}
    for step in range(num_steps):
        trial.step(step, {"MSELoss_output_0": np.float64(0.1), **pair, **sums}, mode_step=step)
    advice = trial.evaluate(LossInputMismatch()).counts.advice
    assert ("is 0.1 of the 25.6 that is minimised" in advice) is is_outweighed
