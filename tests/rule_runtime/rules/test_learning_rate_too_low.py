from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.learning_rate_too_low import LearningRateTooLow
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, healthy_tensors
from tests.rule_runtime.outcomes import first_finding, make_run, reason_of
from tests.rule_runtime.rules.runs import LOSS, found_at
from tests.tables import table


class TestLearningRateTooLowContract(RuleContract):
    def make_rule(self) -> Rule:
        return LearningRateTooLow()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for saved in self.make_steps(worker):
            first = healthy_tensors(0, worker)
            moved = {
                name: np.asarray(value, np.float64) * (1 + 1e-6 * saved.step)
                for name, value in first.items()
                if name.startswith("Net")
            }
            tensors = {**healthy_tensors(saved.step, worker), **moved, LOSS: np.float64(2.3)}
            yield saved._replace(tensors=tensors)


def run(rate: float = 1e-6, *, losses: Iterable[float] = (), growth: float = 0.0) -> TrialBuilder:
    trial = TrialBuilder()
    weight = np.random.default_rng(0).normal(0, 1, (8, 8))
    given = dict(enumerate(losses))
    scale = 1.0
    for at in range(21):
        step = 5 * at
        tensors: dict[str, Any] = {f"Net_{name}.weight": weight * scale for name in "abc"}
        tensors[LOSS] = np.float64(given.get(at, 2.3))
        trial.step(step, tensors, mode_step=step)
        scale += 5 * rate * (1 + growth * at)
    return trial


def test_fires_after_num_steps() -> None:
    trial = run()
    assert found_at(LearningRateTooLow(), trial)[0] == 50
    found = first_finding(LearningRateTooLow(), trial)
    assert found.threshold == 1e-4
    assert 1e-6 < found.value < 1e-5  # the largest of 64 elements moves most
    assert found_at(LearningRateTooLow(num_steps=20), trial)[0] == 20


NOISE = 0.01 * np.random.default_rng(0).lognormal(0, 1, 21)


@table(
    "trial, fires",
    {
        "the loss hardly falls": (run(losses=[2.3] * 5 + [2.08] * 16), True),
        "the loss falls": (run(losses=[2.3] * 5 + [2.06] * 16), False),
        "the loss fell before the third saved step": (run(losses=[2.3, 0.3, *[0.29] * 19]), False),
        "the loss is noise": (run(losses=NOISE), False),
        "the loss is zero, its floor": (run(losses=[0.0] * 21), False),
        "weights move": (run(1e-3), False),
        "weights do not move, another fault": (run(rate=0.0), False),
        # The movement grows with every step, by half within 50 steps until it is no longer small.
        "a warm-up": (run(1e-6, growth=1.0), False),
    },
)
def test_when_a_rate_is_too_low(trial: TrialBuilder, fires: bool) -> None:
    assert bool(found_at(LearningRateTooLow(), trial)) is fires


def test_losses_and_weights_are_needed() -> None:
    outcomes = make_run({"Net_a.weight": [1.0, 2.0]}, {LOSS: [1.0]}).outcomes(LearningRateTooLow())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_steps_of_evaluation_are_not_judged() -> None:
    trial = make_run({"Net_a.weight": [1.0, 2.0], LOSS: [1.0]}, mode=ModeKeys.EVAL)
    assert isinstance(trial.outcomes(LearningRateTooLow())[0], NotEvaluated)


def trees(loss_of: Callable[[int], float], *, eta: float | None = 1e-4) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(losses=("^(train|validation)-",), average_shap=("^shap/",))
    for step in range(0, 60, 2):
        tensors = {"train-logloss": np.float64(loss_of(step)), "validation-logloss": np.float64(1)}
        if eta is not None:
            tensors["hyperparameters/eta"] = np.float64(eta)
        trial.step(step, tensors, mode=ModeKeys.GLOBAL)
    return trial


def test_boosted_trees_with_a_low_rate_are_found_after_20_rounds() -> None:
    trial = trees(lambda step: 0.69 * (1 - 1e-4 * step))
    assert found_at(LearningRateTooLow(), trial)[0] == 20
    outcomes = trial.outcomes(LearningRateTooLow())
    outcome = next(outcome for outcome in outcomes if isinstance(outcome, IssueFound))
    assert outcome.evidence.tensor == "hyperparameters/eta"
    assert outcome.evidence.value == 1e-4


def test_boosted_trees_that_learn_or_whose_rate_is_unknown_are_not_reported() -> None:
    # A schedule may lower the rate once the loss has fallen.
    assert not found_at(LearningRateTooLow(), trees(lambda step: 0.69 * 0.95**step))
    assert not found_at(LearningRateTooLow(), trees(lambda _: 0.69, eta=1e-3))
    assert not found_at(LearningRateTooLow(), trees(lambda _: 0.69, eta=None))


def test_gradients_that_vanish_are_another_cause() -> None:
    """The last layer moves 70 times faster than the hidden ones."""
    trial = TrialBuilder()
    weight = np.random.default_rng(0).normal(0, 1, (8, 8))
    rates = {"Net_a.weight": 1e-6, "Net_b.weight": 1e-6, "Net_last.weight": 7e-5}
    for step in range(0, 105, 5):
        moved = {name: weight * (1 + rate * step) for name, rate in rates.items()}
        trial.step(step, {**moved, LOSS: np.float64(2.3)}, mode_step=step)
    assert not found_at(LearningRateTooLow(), trial)
    assert "times faster than the median one" in reason_of(trial.outcomes(LearningRateTooLow())[-1])


@pytest.mark.parametrize(("loss", "fires"), [(0.0, False), (0.2, False), (0.3, True)])
def test_a_loss_at_its_floor_need_not_fall(loss: float, *, fires: bool) -> None:
    trial = TrialBuilder()
    random = np.random.default_rng(0)
    weight, scores = random.normal(0, 1, (8, 8)), random.normal(0, 1, (40, 10))
    beside = {"CrossEntropyLoss_input_0": scores, "CrossEntropyLoss_input_1": np.arange(40) % 10}
    for step in range(0, 105, 5):
        moved = {"Net_a.weight": weight * (1 + 1e-6 * step), LOSS: np.float64(loss)}
        trial.step(step, {**beside, **moved}, mode_step=step)
    assert bool(found_at(LearningRateTooLow(), trial)) is fires
