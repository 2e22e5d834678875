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
from tests.rule_runtime.rules.runs import LOSS, found_at


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


def run(
    rate: float = 1e-6, *, losses: Iterable[float] = (), gradient: float = 1.0, growth: float = 0.0
) -> TrialBuilder:
    trial = TrialBuilder()
    weight = np.random.default_rng(0).normal(0, 1, (8, 8))
    given = dict(enumerate(losses))
    scale = 1.0
    for at in range(21):
        step = 5 * at
        tensors: dict[str, Any] = {f"Net_{name}.weight": weight * scale for name in "abc"}
        tensors |= {"gradient/Net_a.weight": [gradient], LOSS: np.float64(given.get(at, 2.3))}
        trial.step(step, tensors, mode_step=step)
        scale += 5 * rate * (1 + growth * at)
    return trial


def test_fires_after_num_steps() -> None:
    trial = run()
    assert found_at(LearningRateTooLow(), trial)[0] == 50
    found = next(o for o in trial.outcomes(LearningRateTooLow()) if isinstance(o, IssueFound))
    assert found.evidence.threshold == 1e-4
    assert 1e-6 < found.evidence.value < 1e-5  # the largest of 64 elements moves most
    assert "since step 0" in found.evidence.sentence
    assert found_at(LearningRateTooLow(num_steps=20), trial)[0] == 20


def test_weights_that_move_are_quiet() -> None:
    assert not found_at(LearningRateTooLow(), run(1e-3))


@pytest.mark.parametrize(("now", "fires"), [(2.08, True), (2.06, False)])
def test_a_loss_that_falls_shows_that_the_rate_is_enough(now: float, fires: bool) -> None:
    losses = [2.3] * 5 + [now] * 16
    assert bool(found_at(LearningRateTooLow(), run(losses=losses))) is fires


def test_what_is_learned_before_the_third_saved_step_need_not_fall_further() -> None:
    assert not found_at(LearningRateTooLow(), run(losses=[2.3, 0.3, *[0.29] * 19]))


def test_a_warm_up_is_waited_for() -> None:
    # The movement grows with every step, by half within 50 steps until it is no longer small.
    assert not found_at(LearningRateTooLow(), run(1e-6, growth=1.0))


def test_without_gradients_it_is_another_fault() -> None:
    assert not found_at(LearningRateTooLow(), run(gradient=0.0))
    assert not found_at(LearningRateTooLow(), run(rate=0.0))


def test_losses_and_weights_are_needed() -> None:
    trial = TrialBuilder()
    trial.step(0, {"Net_a.weight": [1.0, 2.0]})
    trial.step(1, {LOSS: [1.0]})
    outcomes = trial.outcomes(LearningRateTooLow())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_steps_of_evaluation_are_not_judged() -> None:
    trial = TrialBuilder()
    trial.step(0, {"Net_a.weight": [1.0, 2.0], LOSS: [1.0]}, mode=ModeKeys.EVAL)
    assert isinstance(trial.outcomes(LearningRateTooLow())[0], NotEvaluated)


def test_a_loss_with_much_noise_does_not_tell_whether_it_fell() -> None:
    losses = 0.01 * np.random.default_rng(0).lognormal(0, 1, 21)
    assert not found_at(LearningRateTooLow(), run(losses=losses))


def trees(loss_of: Callable[[int], float], *, metric: str = "train-logloss") -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(losses=("^(train|validation)-",))
    for step in range(0, 60, 2):
        losses = {metric: np.float64(loss_of(step)), "validation-logloss": np.float64(0.69)}
        trial.step(step, losses, mode=ModeKeys.GLOBAL)
    return trial


def test_boosted_trees_that_hardly_move_are_found_after_20_rounds() -> None:
    trial = trees(lambda step: 0.69 * (1 - 1e-5 * step))
    assert found_at(LearningRateTooLow(), trial)[0] == 20
    outcomes = trial.outcomes(LearningRateTooLow())
    outcome = next(outcome for outcome in outcomes if isinstance(outcome, IssueFound))
    assert outcome.evidence.tensor == "train-logloss"
    assert outcome.evidence.value == pytest.approx(2e-4)
    assert "by 0.02 % in 20 rounds" in outcome.evidence.sentence
    assert isinstance(outcomes[9], NotEvaluated)
    assert found_at(LearningRateTooLow(), trial)[-1] == 58


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda step: 0.69 * (1 - 6e-5 * step),  # it falls by 0.1 % within 20 rounds
        lambda step: 0.69 * (1 - 4e-4 * (1 - 0.8**step)),  # all there is was learned at once
        lambda _: 0.69,  # nothing to learn
        lambda step: 0.69 * (1 + 1e-5 * step),  # it rises: another fault
        lambda _: 0.0,  # it is solved
        lambda step: 0.69 if step < 20 else np.nan,
    ],
)
def test_boosted_trees_that_learn_or_have_nothing_to_learn(loss_of: Callable[[int], float]) -> None:
    assert not found_at(LearningRateTooLow(), trees(loss_of))


@pytest.mark.parametrize("metric", ["train-auc", "validation-error"])
def test_of_boosted_trees_losses_of_training_are_judged(metric: str) -> None:
    trial = trees(lambda step: 0.69 * (1 - 1e-5 * step), metric=metric)
    assert not found_at(LearningRateTooLow(), trial)


def test_boosted_trees_learn_if_one_of_their_losses_falls() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^train-",))
    for step in range(40):
        losses = {"train-logloss": 0.69 * (1 - 1e-5 * step), "train-rmse": 0.5 * 0.99**step}
        trial.step(step, {name: np.float64(x) for name, x in losses.items()}, mode=ModeKeys.GLOBAL)
    assert not found_at(LearningRateTooLow(), trial)


def test_boosted_trees_with_a_share_of_errors_beside_their_loss_are_found() -> None:
    """The first tree lowers it however small its step is, and later ones move it in jumps."""
    trial = TrialBuilder()
    trial.collections(losses=("^train-",))
    for step in range(40):
        errors = 0.42 if step == 0 else 0.36 + 0.01 * (step % 3)
        losses = {"train-logloss": 0.69 * (1 - 1e-5 * step), "train-error": errors}
        trial.step(step, {name: np.float64(x) for name, x in losses.items()}, mode=ModeKeys.GLOBAL)
    assert found_at(LearningRateTooLow(), trial)


def test_more_losses_of_boosted_trees_than_can_be_followed_do_not_break_it() -> None:
    for place, is_found in ((20, False), (35, True)):
        trial = TrialBuilder()
        trial.collections(losses=("^train-",))
        for step in range(30):
            losses = {f"train-{at:02d}": np.float64(1 - 1e-5 * step) for at in range(40)}
            losses[f"train-{place}"] = np.float64(0.9**step)  # the only one that falls
            trial.step(step, losses, mode=ModeKeys.GLOBAL)
        assert bool(found_at(LearningRateTooLow(), trial)) is is_found


@pytest.mark.parametrize(("eta", "is_found"), [(1e-4, True), (1e-3, False), (None, False)])
def test_a_rate_of_boosted_trees_that_was_saved_tells_more(
    eta: float | None, *, is_found: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^train-",))
    for step in range(0, 40, 2):
        rate = {} if eta is None else {"hyperparameters/eta": np.float64(eta)}
        tensors = {**rate, "train-rmse": np.float64(1 - 1e-4 * step)}
        trial.step(step, tensors, mode_step=step)
    assert bool(found_at(LearningRateTooLow(), trial)) is is_found
