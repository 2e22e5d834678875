from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import LossDiverging
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.runs import found_at, judged_at, run_of_losses, with_losses

FALLING = [2.0 * 0.9**at for at in range(15)]


class TestLossDivergingContract(RuleContract):
    def make_rule(self) -> Rule:
        return LossDiverging()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return with_losses(lambda step: 9.0 if step else 2.3, worker)


def test_fires_on_a_loss_that_fell_and_rises_again() -> None:
    trial = run_of_losses(FALLING + [1.8] * 12)
    (first, *_) = found_at(LossDiverging(), trial)
    assert first == 5 * (15 + 8 + 1)  # eight of them are high, three times
    found = next(o for o in trial.outcomes(LossDiverging()) if isinstance(o, IssueFound))
    assert found.evidence.measure == "loss_rise_percent"
    assert found.evidence.value == pytest.approx(100 * (1.8 - np.median(FALLING[5:])) / 2.0)
    assert "to 1.8, by" in found.evidence.sentence


def test_a_second_training_of_the_same_model_is_no_divergence() -> None:
    """With a new head it begins as high as the first one, and falls as that did."""
    random = np.random.default_rng(0)
    second = [2.2 * 0.93**at * random.lognormal(0, 0.08) for at in range(40)]
    assert not found_at(LossDiverging(), run_of_losses([*FALLING, *second]))
    stuck = [max(loss, 1.8) for loss in second]
    assert found_at(LossDiverging(), run_of_losses([*FALLING, *stuck]))


@pytest.mark.parametrize(("rise", "fires"), [(0.51, True), (0.49, False), (0.5, False)])
def test_the_rise_is_measured_by_the_loss_at_the_beginning_and_strict(
    rise: float, fires: bool
) -> None:
    trial = run_of_losses([4.0] * 10 + [1.0] * 10 + [1.0 + 4.0 * rise] * 12)
    assert bool(found_at(LossDiverging(), trial)) is fires


def test_the_scatter_of_a_small_loss_is_no_rise() -> None:
    noise = np.random.default_rng(0).lognormal(0, 1.5, 200)
    assert not found_at(LossDiverging(), run_of_losses([2.0, 1.0, 0.5, *(0.01 * noise)]))


@pytest.mark.parametrize(
    ("loss", "scores", "targets", "fires"),
    [
        ("CrossEntropyLoss", (32, 257), np.zeros(32, int), False),  # the right one comes first
        ("CrossEntropyLoss", (32, 257), np.arange(32), True),
        ("CrossEntropyLoss", (8, 257), np.zeros(8, int), True),
        ("CrossEntropyLoss", (32, 2), np.zeros(32, int), False),  # an adversary
        ("BCEWithLogitsLoss", (32, 1), np.zeros((32, 1)), False),
    ],
)
def test_a_contrastive_loss_rises_while_its_queue_fills(
    loss: str, scores: tuple[int, ...], targets: object, *, fires: bool
) -> None:
    given = np.random.default_rng(0).normal(size=scores)
    beside = {f"{loss}_input_0": given, f"{loss}_input_1": targets}
    trial = run_of_losses([1.3] + [4.1] * 20, name=f"{loss}_output_0", beside=beside)
    assert bool(found_at(LossDiverging(), trial)) is fires


def test_single_spikes_do_not_count() -> None:
    trial = run_of_losses([*FALLING, 50.0, 0.4, 0.4, 50.0, 0.4, 0.4, 0.4])
    assert not found_at(LossDiverging(), trial)


def test_patience_is_in_saved_steps() -> None:
    trial = run_of_losses(FALLING + [1.8] * 12)
    assert found_at(LossDiverging(patience=1), trial)[0] == 5 * 22
    assert not found_at(LossDiverging(patience=40), trial)


def test_negative_losses_are_not_judged() -> None:
    assert not found_at(LossDiverging(), run_of_losses([-9.0] * 8 + [-3.0] * 40))


def test_what_says_nothing_of_training_is_not_judged() -> None:
    rising = [1.0 + at for at in range(30)]
    assert not judged_at(LossDiverging(), run_of_losses(rising, mode=ModeKeys.EVAL))
    trial = run_of_losses([np.nan] * 3)
    (outcome, *_) = trial.outcomes(LossDiverging())
    assert outcome == NotEvaluated("no saved loss is finite")
    trial = run_of_losses(rising[:1], name="validation-rmse", mode=ModeKeys.GLOBAL)
    trial.collections(losses=("rmse",))
    (outcome,) = trial.outcomes(LossDiverging())
    assert outcome == NotEvaluated("validation-rmse is no training loss that should fall")
    assert found_at(LossDiverging(), run_of_losses(rising, mode=ModeKeys.GLOBAL))


def test_the_first_losses_are_not_enough() -> None:
    outcome = run_of_losses([1.0]).outcomes(LossDiverging())[0]
    assert outcome == NotEvaluated("needs 12 losses, had 1", needs_more=True)


def test_a_loss_that_begins_at_zero_has_no_scale() -> None:
    assert not found_at(LossDiverging(), run_of_losses([0.0] * 10 + [1.0] * 10))


def test_the_worst_of_two_losses_is_reported() -> None:
    trial = TrialBuilder()
    for at in range(20):
        losses = {"a_loss_output_0": 3.0 if at else 1.0, "b_loss_output_0": 5.0 if at else 1.0}
        trial.step(at, {name: np.float64(loss) for name, loss in losses.items()})
    found = [o for o in trial.outcomes(LossDiverging()) if isinstance(o, IssueFound)]
    assert {o.evidence.tensor for o in found} == {"b_loss_output_0"}


def test_more_losses_than_can_be_followed_do_not_break_it() -> None:
    trial = TrialBuilder()
    for at in range(30):
        trial.step(at, {f"loss_{i:02d}_output_0": np.float64(1 + at) for i in range(40)})
    found = [o for o in trial.outcomes(LossDiverging()) if isinstance(o, IssueFound)]
    assert found[0].evidence.tensor == "loss_00_output_0"


def several(**losses: Iterable[float]) -> TrialBuilder:
    """Return a run of some losses, by name."""
    trial = TrialBuilder()
    for at, numbers in enumerate(zip(*losses.values(), strict=True)):
        named = zip(losses, numbers, strict=True)
        trial.step(at, {f"{name}_loss_output_0": np.float64(number) for name, number in named})
    return trial


def test_a_loss_that_does_not_diverge_excuses_its_adversary() -> None:
    grown = 1 + np.arange(60.0)
    assert not found_at(LossDiverging(), several(discriminator=0.5**grown, generator=grown))
    assert found_at(LossDiverging(), several(a=grown, b=3 * grown, unused=0 * grown))
