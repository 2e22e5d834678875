from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import OscillatingLoss
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.runs import LOSS, found_at, run_of_losses, with_losses

CALM = [2.0, 2.01] * 5


class TestOscillatingLossContract(RuleContract):
    def make_rule(self) -> Rule:
        return OscillatingLoss()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return with_losses(
            lambda step: 4.0 if step > 50 and step % 10 else 2.0 + step % 2 / 100, worker
        )


def test_fires_on_a_loss_that_swings() -> None:
    trial = run_of_losses(CALM + [2.0, 4.0] * 20)
    assert found_at(OscillatingLoss(), trial)[0] == 130
    found = next(o for o in trial.outcomes(OscillatingLoss()) if isinstance(o, IssueFound))
    # |difference| is 2 throughout: 1.4826 x 2 / sqrt(2), in percent of 2.0 at the beginning
    assert found.evidence.value == pytest.approx(100 * 1.4826 * 2 / 2**0.5 / 2.005)


@pytest.mark.parametrize(("swing", "fires"), [(0.58, True), (0.56, False)])
def test_the_amplitude_is_measured_by_the_loss_at_the_beginning(swing: float, fires: bool) -> None:
    # 30 % of 2 is reached by differences of 0.3 x 2 x sqrt(2) / 1.4826 = 0.5724
    assert bool(found_at(OscillatingLoss(), run_of_losses(CALM + [2.0, 2.0 + swing] * 15))) is fires


def test_a_loss_that_falls_may_scatter() -> None:
    rng = np.random.default_rng(1)
    falling = 4.0 * np.exp(-np.arange(60) / 20) * rng.uniform(0.6, 1.4, 60)
    assert not found_at(OscillatingLoss(), run_of_losses(falling))


def test_a_low_loss_may_scatter() -> None:
    losses = [2.0] * 5 + [0.05, 1.2] * 20
    assert not found_at(OscillatingLoss(), run_of_losses(losses))


def test_it_waits_for_a_full_window() -> None:
    outcomes = run_of_losses(CALM).outcomes(OscillatingLoss())
    assert outcomes[-1] == NotEvaluated("needs 27 losses, had 10", needs_more=True)
    assert found_at(
        OscillatingLoss(num_points=10, patience=1), run_of_losses(CALM + [2.0, 4.0] * 5)
    )


def test_a_loss_of_zero_has_no_scale() -> None:
    assert not found_at(OscillatingLoss(), run_of_losses([0.0, 4.0] * 20))


def test_workers_with_several_losses_are_not_judged() -> None:
    """A generator and its discriminator may both swing."""
    trial = TrialBuilder()
    for step, loss in enumerate(CALM + [2.0, 4.0] * 20):
        trial.step(step, {LOSS: np.float64(loss), "OtherLoss_output_0": np.float64(3 * loss)})
    assert not found_at(OscillatingLoss(), trial)


@pytest.mark.parametrize(("rows", "fires"), [(1, False), (32, True)])
def test_losses_of_single_rows_scatter_by_nature(rows: int, fires: bool) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("Loss_output_0$",))
    for step in range(60):
        value = 2.0 + (1.5 * (-1) ** step if step > 10 else 0.0)
        tensors = {"MSELoss_input_1": np.arange(float(rows)), "MSELoss_output_0": np.float64(value)}
        trial.step(step, {**tensors, "MSELoss_input_0": np.zeros(rows)})
    assert bool(found_at(OscillatingLoss(), trial)) is fires
