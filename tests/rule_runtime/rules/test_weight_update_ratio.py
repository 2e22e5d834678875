from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.memory import MemoryStore
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.weight_update_ratio import WeightUpdateRatio
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.rules.runs import with_maxima

WEIGHT = "Net_fc.weight"
START = np.linspace(-1, 1, 10)


class TestWeightUpdateRatioContract(RuleContract):
    def make_rule(self) -> Rule:
        return WeightUpdateRatio()

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        """A weight that has gradients and does not change."""
        return {**tensors, WEIGHT: np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}


def trial_of(
    weight: Callable[[int], Any], steps: range = range(3), **more: Callable[[int], Any]
) -> TrialBuilder:
    trial = TrialBuilder()
    for step in steps:
        others = {name.replace("__", "/"): of_step(step) for name, of_step in more.items()}
        trial.step(step, {WEIGHT: weight(step), **others}, mode_step=step)
    return trial


def last(trial: TrialBuilder, **parameters: Any) -> Outcome:
    return trial.outcomes(WeightUpdateRatio(**parameters))[-1]


@pytest.mark.parametrize(
    ("factor", "kind"),
    [
        (1.001, Passed),
        (1 / 10.9, Passed),  # |w - w_ref| / |w| is 9.9
        (1 / 11.1, IssueFound),
        (1 + 1.1e-8, Passed),
        (1 + 0.9e-8, IssueFound),
    ],
)
def test_both_thresholds(factor: float, kind: type) -> None:
    outcome = last(trial_of(lambda step: START * factor**step, range(2)))
    assert isinstance(outcome, kind)


def test_both_comparisons_are_strict() -> None:
    ones = trial_of(lambda step: np.array([1.0, 2.0]) * 2.0**-step, range(2))
    assert isinstance(last(ones, large_threshold=1, epsilon=1e-300), Passed)
    assert isinstance(last(ones, large_threshold=0.99, epsilon=1e-300), IssueFound)
    assert isinstance(last(ones, small_threshold=1, epsilon=1e-300), Passed)
    assert isinstance(last(ones, small_threshold=1.01, epsilon=1e-300), IssueFound)


def test_the_evidence() -> None:
    outcome = last(trial_of(lambda step: START * 0.05**step, range(2)))
    assert isinstance(outcome, IssueFound)
    evidence = outcome.evidence
    assert (evidence.tensor, evidence.measure, evidence.threshold) == (WEIGHT, "update_ratio", 10)
    assert evidence.value == pytest.approx(19)
    assert evidence.sentence == f"{WEIGHT}: update / weight 19 > 10, since step 0"


def test_the_most_extreme_is_reported_and_too_large_before_too_small() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(2):
        for worker, factor in enumerate((0.05, 0.02)):
            tensors = {
                "a.weight": START * 0.06**step,
                "b.weight": START * factor**step,
                "c.weight": START * (1 + 1e-9 * step),
            }
            trial.step(step, tensors, worker=f"worker_{worker}")
    outcome = last(trial)
    assert isinstance(outcome, IssueFound)
    assert (outcome.evidence.tensor, outcome.evidence.worker) == ("b.weight", "worker_1")


def test_the_first_step_has_nothing_to_compare_with() -> None:
    outcomes = trial_of(lambda step: START * (1 + 0.01 * step)).outcomes(WeightUpdateRatio())
    assert [type(outcome) for outcome in outcomes] == [NotEvaluated, Passed, Passed]


@pytest.mark.parametrize(
    ("num_steps", "reference"), [(None, 20), (5, 20), (10, 20), (19, 20), (20, 10), (25, 10)]
)
def test_the_reference_is_the_oldest_step_that_is_not_too_old(
    num_steps: int | None, reference: int
) -> None:
    """Saved at 0, 10, 20, 30: seen from 30."""
    trial = trial_of(lambda step: START * 0.01**step, range(0, 31, 10))
    outcome = last(trial, num_steps=num_steps)
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.sentence.endswith(f"since step {reference}")


def test_a_weight_without_gradient_that_does_not_change_is_frozen() -> None:
    def moving(step: int) -> Any:
        return START * (1 + 0.01 * step)

    def gradient(step: int) -> Any:
        return np.full(10, 1.0 + step)

    def fixed(_: int) -> Any:
        return START

    assert isinstance(last(trial_of(fixed, b__weight=moving)), Passed)
    trial = trial_of(fixed, **{"b.weight": moving, "gradient__b.weight": gradient})
    assert isinstance(last(trial), Passed)
    learning = {"b.weight": moving, f"gradient__{WEIGHT}": gradient}
    outcome = last(trial_of(fixed, **learning))
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.value == 0


def test_a_model_none_of_whose_weights_changes_is_an_issue() -> None:
    outcome = last(trial_of(lambda _: START, **{"b.weight": lambda _: START * 2}))
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.sentence == f"{WEIGHT}: update / weight 0 < 1e-08, since step 1"


def test_updates_that_statistics_prove_healthy_cost_no_read() -> None:
    class NoEvents(MemoryStore):
        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            assert not key.startswith("events/"), "a value was read"
            return super().get(key, start, length)

    trial = TrialBuilder(NoEvents("quick"))
    rng = np.random.default_rng(0)
    weight = rng.normal(size=1000).astype(np.float32)
    for step in range(4):
        weight = weight + rng.normal(0, 1e-3, 1000).astype(np.float32)
        trial.step(step, {WEIGHT: weight})
    found = trial.outcomes(WeightUpdateRatio())
    assert [type(outcome) for outcome in found] == [NotEvaluated] + [Passed] * 3


def test_an_update_that_no_statistic_shows_is_found_in_the_values() -> None:
    rng = np.random.default_rng(0)
    trial = trial_of(lambda _: rng.permutation(START))
    assert isinstance(last(trial), Passed)


def test_without_values_only_what_statistics_prove_is_judged() -> None:
    def outcome_of(*values: Any) -> Outcome:
        trial = TrialBuilder()
        for step, value in enumerate(values):
            trial.step(step, {WEIGHT: value}, save_values=False)
        return last(trial)

    assert isinstance(outcome_of(START, START * 1.01), Passed)
    assert isinstance(outcome_of(START, START), IssueFound)
    assert isinstance(outcome_of(START, START * 0.05), NotEvaluated)


@pytest.mark.parametrize(
    "value",
    [np.full(3, np.nan), [np.inf, 1.0], np.empty(0), np.array(["a"]), [1j], np.array([True])],
)
def test_what_cannot_be_compared_is_ignored(value: Any) -> None:
    beside = trial_of(lambda _: value, **{"b.weight": lambda step: START * (1 + 0.01 * step)})
    assert isinstance(last(beside), Passed)


def test_another_shape_is_not_compared() -> None:
    trial = trial_of(lambda step: START.reshape((2, 5) if step % 2 else (5, 2)))
    assert isinstance(last(trial), NotEvaluated)


def test_steps_are_those_of_training_and_global_ones_until_there_are_any() -> None:
    trial = TrialBuilder()
    modes = [ModeKeys.GLOBAL] * 2 + [ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN, ModeKeys.GLOBAL]
    for step, mode in enumerate(modes):
        trial.step(step, {WEIGHT: START * (1 + 0.01 * step)}, mode=mode)
    kinds = [type(outcome) for outcome in trial.outcomes(WeightUpdateRatio())]
    assert kinds == [NotEvaluated, Passed, NotEvaluated, NotApplicable, Passed, NotApplicable]


def test_a_counter_that_was_set_back_begins_anew() -> None:
    trial = TrialBuilder()
    for step, mode_step in enumerate((5, 6, 0, 1)):
        trial.step(step, {WEIGHT: START * (1 + 0.01 * step)}, mode_step=mode_step)
    kinds = [type(outcome) for outcome in trial.outcomes(WeightUpdateRatio())]
    assert kinds == [NotEvaluated, Passed, NotEvaluated, Passed]


def test_the_memory_of_a_long_distance_is_bounded() -> None:
    trial = trial_of(lambda step: START * (1 + 0.01 * step), range(600))
    evaluation = Evaluation.fresh(WeightUpdateRatio(num_steps=100_000))
    sizes = []
    for view in trial.views():
        assert not isinstance(evaluation.feed(view), IssueFound)
        sizes.append(len(json.dumps(evaluation.memory)))
    assert max(sizes) < 3_000


def test_parameters() -> None:
    rule = create_rule("WeightUpdateRatio", {"num_steps": "100", "large_threshold": "5"})
    assert rule == WeightUpdateRatio(num_steps=100, large_threshold=5)
    assert rule.requires() == (
        CollectionConfig("weights", {"save_interval": "500", "save_raw_tensor": "True"}),
    )
    for name, value in [("num_steps", 0), ("large_threshold", 0), ("epsilon", 0)]:
        with pytest.raises(ParameterError, match=name):
            WeightUpdateRatio(**{name: value})


def test_why_no_weight_can_be_compared() -> None:
    trials = (
        trial_of(lambda step: START * (1.0 if step else np.nan), range(2)),
        trial_of(lambda step: START[step:], range(2)),
        with_maxima(WEIGHT, num_steps=2),
    )
    for trial in trials:
        outcome = last(trial)
        assert isinstance(outcome, NotEvaluated)
        assert outcome.reason.startswith("no weight can be compared with step 0: save their values")
