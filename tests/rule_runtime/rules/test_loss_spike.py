from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import LossSpike
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.runs import found_at, run_of_losses, with_losses

QUIET = [2.0, *np.linspace(1.1, 0.9, 21)]


class TestLossSpikeContract(RuleContract):
    def make_rule(self) -> Rule:
        return LossSpike()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return with_losses(
            lambda step: 9.0 if 100 <= step < 120 else 2.3 * 0.98**step + 0.01 * (step % 3), worker
        )


def test_fires_at_the_third_high_loss() -> None:
    trial = run_of_losses([*QUIET, 5.0, 5.2, 5.5, 1.0, 1.0])
    assert found_at(LossSpike(), trial) == [5 * 24]
    (found,) = [o for o in trial.outcomes(LossSpike()) if isinstance(o, IssueFound)]
    assert found.evidence.value == 5.5
    assert found.evidence.threshold < 5.0
    assert "the median before is 0.995" in found.evidence.sentence


def test_one_high_loss_is_a_bad_batch() -> None:
    trial = run_of_losses([*QUIET, 5.0, 1.0, 1.0, 5.0, 1.0])
    assert not found_at(LossSpike(), trial)
    assert found_at(LossSpike(patience=1), trial) == [5 * 22]


@pytest.mark.parametrize(("rise", "fires"), [(0.21, True), (0.19, False)])
def test_the_rise_is_measured_by_the_loss_at_the_beginning(rise: float, fires: bool) -> None:
    flat = [2.0] * 5 + [1.0, 1.001] * 15
    trial = run_of_losses([*flat, *[1.0005 + rise * 2.0] * 3])
    assert bool(found_at(LossSpike(), trial)) is fires


def test_noise_widens_the_limit() -> None:
    noisy = [2.0] * 5 + [0.5, 1.5] * 15
    assert not found_at(LossSpike(), run_of_losses([*noisy, 4.0, 4.0, 4.0]))
    assert found_at(LossSpike(), run_of_losses([*noisy, 40.0, 40.0, 40.0]))


def test_a_quarter_of_the_window_is_enough() -> None:
    outcomes = run_of_losses([2.0, 1.9, 1.8, 1.7, 1.6, 9.0, 9.0, 9.0]).outcomes(LossSpike())
    assert isinstance(outcomes[-1], IssueFound)
    assert outcomes[-2] == NotEvaluated("needs 8 losses, had 7", needs_more=True)


def test_a_new_level_is_a_spike_once() -> None:
    trial = run_of_losses([*QUIET, *[5.0] * 40])
    assert found_at(LossSpike(), trial) == [5 * 24]


@pytest.mark.parametrize(("start", "fires"), [(0.0, False), (2.0, True)])
def test_a_loss_that_was_always_zero_begins(start: float, fires: bool) -> None:
    """As where a reward is found at last, or a part of the loss is switched on later."""
    trial = run_of_losses([start, *[0.0] * 25, 1.0, 1.1, 1.2])
    assert bool(found_at(LossSpike(), trial)) is fires
