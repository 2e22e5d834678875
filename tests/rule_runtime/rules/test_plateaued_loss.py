from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.outcomes import first_finding
from tests.rule_runtime.rules.runs import found_at, run_of_losses, with_losses
from tests.tables import table


class TestPlateauedLossContract(RuleContract):
    def make_rule(self) -> Rule:
        return PlateauedLoss()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return with_losses(lambda step: 2.3 + 0.01 * (step % 2), worker)


def test_fires_on_a_loss_that_stays_where_it_began() -> None:
    trial = run_of_losses([2.3] * 40)
    assert found_at(PlateauedLoss(), trial)[0] == 150
    found = first_finding(PlateauedLoss(), trial)
    assert (found.value, found.threshold) == (0, 5)


def fallen_by(percent: float) -> list[float]:
    """Return losses that turn around 2, and around less from the 11th on."""
    return [2.0, *np.tile([2.01, 1.99], 5), *np.tile([1.01, 0.99], 30) * (2 - percent / 50)]


@table(
    "losses, is_found",
    {
        "a fall of 0.2 %": (fallen_by(0.2), True),
        "a fall of 5.2 %": (fallen_by(5.2), False),
        "a rise": ([2.0 + 0.001 * at for at in range(40)], True),
        "a fall long ago and the way back": ([2.0] * 10 + [1.5] * 15 + [2.0] * 60, False),
        "a loss that converged": ([2.0, 1.9, 1.5, 1.2, 1.0] + [1.0] * 100, False),
    },
)
def test_when_a_loss_is_a_plateau(losses: list[float], is_found: bool) -> None:
    found = found_at(PlateauedLoss(), run_of_losses(losses))
    assert any(step >= 150 for step in found) is is_found


@pytest.mark.parametrize(("slope", "is_found"), [(0.0, True), (7e-4, False)])
def test_a_fall_from_the_first_scores_to_guessing_is_no_trend_for_ever(
    slope: float, *, is_found: bool
) -> None:
    rng = np.random.default_rng(0)
    losses = 2.303 + 0.04 * np.exp(-np.arange(60) / 6) - slope * np.arange(60)
    losses += rng.normal(0, 0.008, 60)
    found = found_at(PlateauedLoss(), run_of_losses(losses, interval=10))
    assert bool(found) is is_found
    assert all(step >= 150 for step in found)


def test_how_often_losses_are_saved_hardly_matters() -> None:
    rng = np.random.default_rng(0)
    for interval in (1, 5, 10):
        steps = np.arange(0, 300, interval)
        learns = 2.3 * np.exp(-steps / 300) + rng.normal(0, 0.15, len(steps))
        stuck = 2.3 + rng.normal(0, 0.05, len(steps))
        assert not found_at(PlateauedLoss(), run_of_losses(learns, interval=interval))
        assert found_at(PlateauedLoss(), run_of_losses(stuck, interval=interval))


def test_a_run_that_is_too_short_is_not_judged() -> None:
    outcomes = run_of_losses([2.3] * 104, interval=1).outcomes(PlateauedLoss())
    message = "needs 21 losses, had {}"
    for step, count in ((0, 1), (5, 2), (90, 19)):
        assert outcomes[step] == NotEvaluated(message.format(count), needs_more=True)
    reason = "needs 150 steps, had 103: a warm-up does not count"
    assert outcomes[-1] == NotEvaluated(reason, needs_more=True)


def test_boosted_trees_that_learn_little_have_no_finding_while_they_learn() -> None:
    for fall, is_found in ((1e-4, False), (0.0, True)):
        trial = TrialBuilder()
        trial.collections(losses=("^train-",))
        for step in range(0, 200, 2):
            tensors = {"train-logloss": np.float64(0.69 - fall * step)}
            trial.step(step, tensors, mode_step=step)
        assert bool(found_at(PlateauedLoss(), trial)) is is_found


def test_of_a_loss_below_zero_nobody_knows_how_far_it_should_fall() -> None:
    """As of a critic, or a log-likelihood."""
    for level, is_found in ((1.0, True), (-1.0, False)):
        trial, random = TrialBuilder(), np.random.default_rng(0)
        for step in range(0, 600, 5):
            loss = np.float64(level + 0.02 * random.normal())
            trial.step(step, {"Loss_output_0": loss}, mode_step=step)
        assert bool(found_at(PlateauedLoss(), trial)) is is_found


def warming_up(num_steps: int, *, jitter: float = 0.2) -> TrialBuilder:
    """Return a run whose rate grows for some steps, and with it what the loss falls by in each.

    So noise hides its fall for long: by the square of the steps, 1 % after 160 of 1,000.
    """
    random, trial = np.random.default_rng(0), TrialBuilder()
    weight = np.linspace(-1, 1, 64)
    trial.collections(losses=("^Loss",), weights=("weight$",))
    for step in range(0, 600, 5):
        warm = min(step, num_steps)
        rate = warm / num_steps * (1 + jitter * random.uniform(-1, 1))
        weight = weight * (1 + 0.005 * rate)
        gone = (warm**2 / 2 / num_steps + (step - warm)) / num_steps
        loss = 2.3 * (1 - 0.8 * gone) if num_steps > 1 else 2.3
        tensors = {"layer.weight": weight, "Loss_output_0": np.float64(loss)}
        tensors["Loss_output_0"] += 0.03 * random.normal()
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize(("num_steps", "is_found"), [(1000, False), (1, True)])
def test_a_linear_warm_up_is_waited_for_but_no_jitter(num_steps: int, *, is_found: bool) -> None:
    found = found_at(PlateauedLoss(), warming_up(num_steps))
    assert bool(found) is is_found
    assert not found or min(found) <= 200
