from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.learning_rate_too_high import LearningRateTooHigh
from rule_runtime.rules.learning_rate_too_low import LearningRateTooLow
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, healthy_tensors
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.rules.runs import LOSS, found_at, with_maxima


class TestLearningRateTooHighContract(RuleContract):
    def make_rule(self) -> Rule:
        return LearningRateTooHigh()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for saved in self.make_steps(worker):
            scale = 3.0 ** (saved.step // 5 % 8)
            tensors = {
                name: np.asarray(value) * (scale if name.startswith("Net") else 1)
                for name, value in healthy_tensors(saved.step, worker).items()
            }
            yield saved._replace(tensors=tensors)


def run_of_scales(*scales: float, interval: int = 5, start: int = 10) -> TrialBuilder:
    trial = TrialBuilder()
    weight = np.random.default_rng(0).normal(0, 1, (8, 8))
    for at, scale in enumerate(scales):
        tensors = {f"Net_{name}.weight": weight * scale for name in "abc"}
        step = start + at * interval
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize(("scale", "fires"), [(2.26, True), (2.24, False)])
def test_the_change_is_that_of_one_step(scale: float, fires: bool) -> None:
    # In 5 steps the norm changes by 1.25 of itself: 0.25 a step. Minimum and maximum change less.
    assert bool(found_at(LearningRateTooHigh(), run_of_scales(1.0, scale))) is fires


def test_the_evidence_is_a_lower_bound() -> None:
    outcomes = run_of_scales(1.0, 3.0).outcomes(LearningRateTooHigh())
    assert isinstance(outcomes[0], NotEvaluated)
    assert isinstance(outcomes[1], IssueFound)
    evidence = outcomes[1].evidence
    assert evidence.value == pytest.approx(2.0 / 5)
    assert (evidence.measure, evidence.threshold) == ("least_update_ratio", 0.25)
    assert "changes by 0.4 of its norm or more in a step" in evidence.sentence


def run_of_three(others: float) -> TrialBuilder:
    """Return a run in which one weight of three jumps, and the others change by this share."""
    trial = TrialBuilder()
    for step in (0, 1):
        changes = {"a": 19.0, "b": others, "c": others}
        weights = {
            f"Net_{name}.weight": np.arange(1.0, 9.0) * (1 + step * change)
            for name, change in changes.items()
        }
        trial.step(10 + 5 * step, weights, mode_step=10 + 5 * step)
    return trial


def test_one_weight_of_three_is_not_the_learning_rate() -> None:
    assert isinstance(run_of_three(1e-3).outcomes(LearningRateTooHigh())[1], Passed)


def test_frozen_weights_do_not_hide_the_others() -> None:
    assert isinstance(run_of_three(0.0).outcomes(LearningRateTooHigh())[1], IssueFound)


def test_patience() -> None:
    trial = run_of_scales(1.0, 3.0, 9.0, 9.0, 27.0)
    assert found_at(LearningRateTooHigh(patience=2), trial) == [20]


def test_the_numbers_of_a_line_have_no_scale() -> None:
    """Slope and intercept start near zero, and pass through zero on their way."""
    trial = make_run(
        *({"Line.weight": np.array([2.0, -3.0]) * (step - 9.5) / 9.5} for step in range(20))
    )
    assert not found_at(LearningRateTooHigh(), trial)


def test_weights_of_zero_and_scalars_have_no_ratio() -> None:
    trial = make_run(
        *(
            {"Net_a.weight": np.full(4, float(step > 1)), "Net_b.weight": [step]}
            for step in range(4)
        )
    )
    assert not found_at(LearningRateTooHigh(), trial)


def test_steps_of_evaluation_are_not_judged() -> None:
    trial = make_run({"Net_a.weight": [1.0, 2.0]}, mode=ModeKeys.EVAL)
    assert isinstance(trial.outcomes(LearningRateTooHigh())[0], NotEvaluated)


@pytest.mark.parametrize(
    ("scales", "fires"),
    [
        ((1.0, 5.0, 5.1, 5.0), False),  # a jump of RMSprop
        ((1.0, 14.0, 14.1), True),
        ((1.0, 2.0, 3.0, 4.0), False),
    ],
)
def test_a_jump_at_the_beginning_counts_if_it_is_large(
    scales: tuple[float, ...], fires: bool
) -> None:
    assert bool(found_at(LearningRateTooHigh(), run_of_scales(*scales, start=0))) is fires


@pytest.mark.parametrize(
    ("scales", "found"),
    [
        ((1.0, 1.0, 1.0, 1.4, 1.4, 1.4), []),  # L-BFGS: a step is many iterations
        ((1.0, 1.0, 1.0, 1.4, 1.9, 1.9), [14]),
        ((1.0, 1.0, 1.4, 1.4, 1.9, 1.9), []),
    ],
)
def test_single_steps_count_if_there_are_two(scales: tuple[float, ...], found: list[int]) -> None:
    trial = run_of_scales(*scales, interval=1)
    assert found_at(LearningRateTooHigh(), trial) == found
    # Of the mean of two steps a single one is enough.
    assert bool(found_at(LearningRateTooHigh(), run_of_scales(1.0, 1.6, interval=2)))


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_weights_that_begin_at_zero_grow_by_large_parts_of_themselves(interval: int) -> None:
    scales = [2.0 * (1 - 0.98 ** (at * interval)) for at in range(20)]
    assert not found_at(LearningRateTooHigh(), run_of_scales(*scales, interval=interval, start=0))
    scales = [0.0, *(1.6 ** (at * interval) for at in range(10))]
    assert found_at(LearningRateTooHigh(), run_of_scales(*scales, interval=interval, start=0))


@pytest.mark.parametrize(
    ("hyperparameters", "fires"),
    [
        ({"eta": 60.0}, True),
        ({"learning_rate": 2.0}, True),
        ({"eta": 1.0}, False),  # a random forest
        ({"max_depth": 6}, False),
    ],
)
def test_the_rate_of_boosted_trees_is_at_most_1(
    hyperparameters: dict[str, float], fires: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(average_shap=("^shap/",))
    saved = {f"hyperparameters/{name}": np.array([v]) for name, v in hyperparameters.items()}
    trial.step(0, saved, mode=ModeKeys.GLOBAL)
    assert found_at(LearningRateTooHigh(), trial) == ([0] if fires else [])


@pytest.mark.parametrize("rule", [LearningRateTooHigh(), LearningRateTooLow()])
def test_why_weights_cannot_be_compared(rule: Rule) -> None:
    def reasons(*weights: object) -> list[str]:
        trial = TrialBuilder()
        for step, weight in enumerate(weights):
            tensors = {"Net_a.weight": weight, "MSELoss_output_0": np.float64(1)}
            trial.step(step, tensors)
        outcomes = trial.outcomes(rule)
        return [o.reason for o in outcomes if isinstance(o, NotEvaluated)]

    original = with_maxima("Net_a.weight", num_steps=2)
    if isinstance(rule, LearningRateTooHigh):
        (_, outcome) = original.outcomes(rule)
        assert isinstance(outcome, NotEvaluated)
        assert outcome.reason.startswith("saved weights have no l2, mean")
    ones = np.ones(8)
    assert reasons(ones, ones) == ["needs 2 saved steps, had 1"]
    assert reasons(np.nan * ones, np.nan * ones)[1].startswith("no saved weight is finite")
    assert reasons(0 * ones, ones)[1] == "no weight can be compared with step 0, the step before"


FIRST_LOSSES = [0.7, 18.0, 30.0, 9.0, 5.0, 12.0, *[3.0, 2.0] * 10]


@pytest.mark.parametrize(
    ("scale", "losses", "rows", "fires"),
    [
        (40.0, FIRST_LOSSES, 32, True),
        (40.0, FIRST_LOSSES, 2, False),  # the first loss may be luck
        (40.0, FIRST_LOSSES, None, False),
        (2.0, FIRST_LOSSES, 32, False),  # the weights did not jump
        (40.0, [0.7, 18.0, 30.0, *[0.3, 0.2] * 12], 32, False),  # the loss recovers
        (40.0, [3.7, 0.4, 22.0, *[0.45, 0.5] * 12], 32, True),
        (40.0, [3.7, 0.4, 2.0, *[0.45, 0.5] * 12], 32, False),  # the loss did not jump
    ],
)
def test_one_jump_counts_if_the_loss_stays_high(
    scale: float, losses: list[float], rows: int | None, *, fires: bool
) -> None:
    trial = TrialBuilder()
    weight = np.random.default_rng(0).normal(0, 1, (8, 8))
    for step, loss in enumerate(losses):
        size = scale + step if step else 1.0
        tensors = {"Net_a.weight": weight * size, LOSS: np.float64(loss)}
        if rows is not None:
            inputs = (np.zeros((rows, 10)), np.arange(rows) % 10)
            tensors |= {f"CrossEntropyLoss_input_{at}": each for at, each in enumerate(inputs)}
        trial.step(step, tensors)
    found = [*range(19, len(losses))] if fires else []
    assert found_at(LearningRateTooHigh(), trial) == found
    issues = [o for o in trial.outcomes(LearningRateTooHigh()) if isinstance(o, IssueFound)]
    assert all(issue.evidence.value == pytest.approx(scale) for issue in issues)
    assert all(issue.evidence.threshold == 2.5 for issue in issues)
