from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import (
    IssueFound,
    NotApplicable,
    NotEvaluated,
    Passed,
    RuleStatus,
)
from rule_runtime.rules.loss_not_decreasing import LossNotDecreasing
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run

LOSS = "CrossEntropyLoss_output_0"
FALLING = [0.9**n for n in range(40)]


class TestLossNotDecreasingContract(RuleContract):
    def make_rule(self) -> LossNotDecreasing:
        return LossNotDecreasing()


def trial_of(losses: Iterable[float], *, interval: int = 4, first: int = 0) -> TrialBuilder:
    trial = TrialBuilder()
    for at, loss in enumerate(losses):
        step = first + at * interval
        trial.step(step, {LOSS: np.float32(loss)}, mode_step=step)
    return trial


def kinds(trial: TrialBuilder, rule: LossNotDecreasing) -> dict[int, type]:
    return {
        view.step: type(outcome)
        for view, outcome in zip(trial.views(), trial.outcomes(rule), strict=True)
    }


def judged(trial: TrialBuilder, rule: LossNotDecreasing) -> dict[int, type]:
    return {s: kind for s, kind in kinds(trial, rule).items() if not issubclass(kind, NotEvaluated)}


def test_published_schedule() -> None:
    """Saved every 3 steps, num_steps 10: 21 is compared with 9, and the next check is at 33."""
    rule = LossNotDecreasing(num_steps=10)
    trial = trial_of([1.0] * 10, interval=3, first=9)
    assert judged(trial, rule) == {21: IssueFound, 33: IssueFound}
    evidence = evidence_of(trial.outcomes(rule)[4])
    assert evidence.sentence == (
        f"{LOSS}: fell by 0 %, and should have fallen by 0.1 %, from 1 at step 9 to 1 at step 21"
    )


def test_original_fixture_standing_still_fires_at_12() -> None:
    trial = trial_of([0.30, 0.33, 0.31, 0.30, 0.28])
    assert judged(trial, LossNotDecreasing()) == {12: IssueFound}


def test_original_fixture_with_diff_percent_20() -> None:
    """Fired at 24 only in 2019, when diff_percent was a tolerated rise; see "How it decides"."""
    trial = trial_of([0.30, 0.33, 0.31, 0.30, 0.28, 0.20, 0.42])
    rule = LossNotDecreasing(diff_percent=20)
    assert judged(trial, rule) == {12: IssueFound, 24: IssueFound}
    evidence = evidence_of(trial.outcomes(rule)[6])
    assert evidence.measure == "loss_increase_percent"
    assert evidence.value == pytest.approx(40, rel=1e-5)
    assert evidence.threshold == 5


@pytest.mark.parametrize(
    ("before", "after", "measure"),
    [
        (1.0, 0.9, None),
        (1.0, 0.9995, "loss_decrease_percent"),
        (1.0, 1.04, "loss_decrease_percent"),
        (1.0, 1.06, "loss_increase_percent"),
        (-1.0, -1.1, None),
        (-1.0, -0.9, "loss_increase_percent"),
        (0.0, -1.0, None),
        (0.0, 0.0, "loss_decrease_percent"),
        (0.0, 1.0, "loss_increase_percent"),
        (2.0, -1.0, None),
    ],
)
def test_what_counts_as_a_fall(before: float, after: float, measure: str | None) -> None:
    outcome = trial_of([before, after], interval=10).outcomes(LossNotDecreasing())[1]
    if measure is None:
        assert isinstance(outcome, Passed)
    else:
        assert isinstance(outcome, IssueFound)
        assert outcome.evidence.measure == measure
        json.dumps(outcome.evidence.to_json(), allow_nan=False)


def test_a_falling_loss_is_never_an_issue() -> None:
    state = trial_of(FALLING).evaluate(LossNotDecreasing())
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    assert state.counts.evaluated == 13  # 12, 24, ..., 156


def test_a_run_too_short_for_a_comparison_ends_as_error_with_the_reason() -> None:
    state = trial_of([1.0, 1.0, 1.0], interval=4).evaluate(LossNotDecreasing())
    assert state.status is RuleStatus.ERROR
    assert state.reason == "needs 10 TRAIN steps, had 8"


def test_the_reason_names_the_judged_mode() -> None:
    builder = make_run({"loss": 1.0}, collections={"losses": ("loss",)}, mode=ModeKeys.EVAL)
    builder.step(1, {"loss": 1.0}, mode=ModeKeys.TRAIN)
    assert builder.evaluate(LossNotDecreasing()).reason == "needs 10 EVAL steps, had 0"
    assert (
        "losses of mode PREDICT are evaluated"
        in builder.evaluate(LossNotDecreasing(mode="PREDICT")).reason
    )


def test_a_loss_that_is_not_finite_is_not_compared_and_the_check_stays_due() -> None:
    trial = trial_of([1.0, 1.0, 1.0, np.nan, np.inf, 1.0])
    assert judged(trial, LossNotDecreasing()) == {20: IssueFound}


def test_each_worker_and_loss_is_judged_and_the_worst_is_the_evidence() -> None:
    trial = TrialBuilder(num_workers=2)
    for step, values in ((0, (1.0, 1.0)), (10, (0.5, 1.2))):
        for worker, value in enumerate(values):
            tensors = {LOSS: np.float32(value), "aux_loss_output": np.float32(1.0)}
            trial.step(step, tensors, mode_step=step, worker=f"worker_{worker}")
    evidence = evidence_of(trial.outcomes(LossNotDecreasing())[1])
    assert (evidence.worker, evidence.tensor) == ("worker_1", LOSS)


def test_eval_is_judged_as_soon_as_it_has_data_and_counts_its_own_steps() -> None:
    """Ten TRAIN steps, then one EVAL step, again and again: the EVAL loss stands still."""
    trial = TrialBuilder()
    step = 0
    for epoch in range(25):
        for _ in range(10):
            trial.step(step, {LOSS: np.float32(0.9**step)}, mode=ModeKeys.TRAIN)
            step += 1
        loss = 1.0 if epoch > 5 else 0.5**epoch
        trial.step(step, {LOSS: np.float32(loss)}, mode=ModeKeys.EVAL)
        step += 1
    rule = LossNotDecreasing(num_steps=10)
    # EVAL shows up at global step 10; its steps 10 and 20 are compared with 0 and 10.
    assert judged(trial, rule) == {120: IssueFound, 230: IssueFound}
    assert judged(trial, LossNotDecreasing(num_steps=10, mode="TRAIN")).keys() >= {11, 22}
    assert IssueFound not in judged(trial, LossNotDecreasing(num_steps=10, mode="TRAIN")).values()


def test_steps_of_one_evaluation_pass_are_not_compared_with_each_other() -> None:
    trial = TrialBuilder()
    step = 0
    for epoch in range(3):
        for _ in range(3):
            trial.step(step, {"weight": [1.0]}, mode=ModeKeys.TRAIN)
            step += 1
        for _ in range(30):
            trial.step(step, {LOSS: np.float32(0.5**epoch)}, mode=ModeKeys.EVAL)
            step += 1
    outcomes = judged(trial, LossNotDecreasing(num_steps=10))
    assert outcomes
    assert set(outcomes.values()) == {Passed}


def test_global_counts_the_steps_of_all_modes() -> None:
    trial = TrialBuilder()
    for step in range(0, 40, 5):
        trial.step(step, {LOSS: np.float32(1.0)}, mode=[ModeKeys.TRAIN, ModeKeys.EVAL][step % 2])
    assert judged(trial, LossNotDecreasing(mode="GLOBAL")) == dict.fromkeys(
        (10, 20, 30), IssueFound
    )


def test_a_counter_that_is_set_back_begins_another_comparison() -> None:
    trial = TrialBuilder()
    for step, (mode_step, loss) in enumerate(
        [(0, 0.1), (10, 0.05), (0, 4.0), (10, 2.0), (0, 5.0), (10, 5.0)]
    ):
        trial.step(step, {LOSS: np.float32(loss)}, mode_step=mode_step)
    assert judged(trial, LossNotDecreasing()) == {1: Passed, 3: Passed, 5: IssueFound}


def test_other_losses_may_be_named() -> None:
    trial = TrialBuilder()
    for step in (0, 10):
        trial.step(step, {"train-rmse": [1.0]}, mode_step=step)
    assert set(kinds(trial, LossNotDecreasing()).values()) == {NotApplicable}
    rule = LossNotDecreasing(tensor_regex=("rmse$",), use_losses_collection=False)
    assert judged(trial, rule) == {10: IssueFound}


def test_the_memory_of_a_long_distance_is_bounded() -> None:
    rule = LossNotDecreasing(num_steps=1000, diff_percent=50)
    trial = make_run(*({"loss_output_0": [1.0]} for _ in range(2100)), save_values=False)
    evaluation = Evaluation.fresh(rule)
    sizes, found = [], []
    for view in trial.views():
        outcome = evaluation.feed(view)
        sizes.append(len(json.dumps(evaluation.memory)))
        if isinstance(outcome, IssueFound):
            found.append((view.step, outcome.evidence.sentence))
    assert max(sizes) < 6_000
    assert [step for step, _ in found] == [1000, 2000]
    assert "from 1 at step 0 " in found[0][1]
    assert "from 1 at step 1000 " in found[1][1]


def test_a_small_rise_is_reported_as_one() -> None:
    evidence = evidence_of(trial_of([1.0, 1.04], interval=10).outcomes(LossNotDecreasing())[1])
    assert "rose by 4 %, and should have fallen by 0.1 %, from 1" in evidence.sentence
