from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.evaluation.outcome import IssueFound
from rule_runtime.evaluation.rule import Rule
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.runs import LOSS, found_at


def passes(pairs: Iterable[tuple[float, float]]) -> list[SavedStep]:
    """Return a run in which losses of training and validation take turns, 5 steps each."""
    steps: list[SavedStep] = []
    for training, validation in [*pairs, (1.0, 1.0)]:
        for mode, loss in ((ModeKeys.TRAIN, training), (ModeKeys.EVAL, validation)):
            for _ in range(5):
                steps.append(SavedStep(len(steps), {LOSS: np.float64(loss)}, mode, len(steps)))
    return steps[:-9]


def trial_of(steps: Iterable[SavedStep]) -> TrialBuilder:
    trial = TrialBuilder()
    for saved in steps:
        trial.step(saved.step, saved.tensors, mode=saved.mode, mode_step=saved.mode_step)
    return trial


class TestGeneralisationGapContract(RuleContract):
    def make_rule(self) -> Rule:
        return GeneralisationGap()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return passes([(2.0, 1.9), (1.0, 1.0), (0.5, 0.6), (0.1, 0.3), (0.01, 0.3)])

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return passes([(2.0, 1.9), (1.0, 1.0), (0.3, 0.9), (0.01, 1.2), (0.01, 1.5)])


def test_fires_behind_the_second_pass_with_a_gap() -> None:
    trial = trial_of(passes([(2.0, 1.9), (0.3, 0.8), (0.1, 0.9), (0.1, 0.9)]))
    assert found_at(GeneralisationGap(), trial) == [29, 39]
    found = next(o for o in trial.outcomes(GeneralisationGap()) if isinstance(o, IssueFound))
    assert found.evidence.value == pytest.approx(100 * (0.9 - 0.1) / 2.0)
    assert "a gap of 40 % of 2 at the beginning" in found.evidence.sentence


@pytest.mark.parametrize(("validation", "fires"), [(0.51, True), (0.49, False)])
def test_the_gap_is_measured_by_the_beginning(validation: float, fires: bool) -> None:
    trial = trial_of(passes([(2.0, 1.9)] + [(0.1, validation)] * 4))
    assert bool(found_at(GeneralisationGap(), trial)) is fires


@pytest.mark.parametrize(("validation", "fires"), [(4.01, True), (3.99, False)])
def test_and_must_be_a_part_of_the_loss(validation: float, fires: bool) -> None:
    trial = trial_of(passes([(2.0, validation)] * 5))
    assert bool(found_at(GeneralisationGap(), trial)) is fires


def test_a_pass_is_averaged() -> None:
    steps = []
    for saved in passes([(2.0, 1.0)] * 5):
        loss = 9.0 if saved.mode is ModeKeys.EVAL and saved.step % 5 == 0 else None
        steps.append(saved if loss is None else saved._replace(tensors={LOSS: np.float64(loss)}))
    assert not found_at(GeneralisationGap(), trial_of(steps))  # (9 + 4 x 1) / 5 = 2.6


def test_the_last_pass_of_a_run_is_judged() -> None:
    steps = passes([(2.0, 1.9), (0.3, 0.8), (0.1, 0.9)])[:-1]  # nothing behind the last pass
    assert steps[-1].mode is ModeKeys.EVAL
    assert found_at(GeneralisationGap(), trial_of(steps)) == [29]


def test_the_scatter_of_small_batches_is_no_gap() -> None:
    rng = np.random.default_rng(0)
    steps: list[SavedStep] = []
    for _ in range(20):
        losses = [*rng.lognormal(0, 1.5, 10), 3.0]
        for at, loss in enumerate(losses):
            mode = ModeKeys.EVAL if at == len(losses) - 1 else ModeKeys.TRAIN
            steps.append(SavedStep(len(steps), {LOSS: np.float64(loss)}, mode, len(steps)))
    assert not found_at(GeneralisationGap(), trial_of(steps))


def test_metrics_that_should_grow_are_not_judged() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-aucpr$",))
    for step in range(10):
        trial.step(step, {"train-aucpr": [0.1], "validation-aucpr": [0.9]})
    assert not found_at(GeneralisationGap(), trial)
