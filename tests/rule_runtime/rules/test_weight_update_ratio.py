from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.weight_update_ratio import UnchangedTensor, WeightUpdateRatio
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.outcomes import evidence_of, make_run, reason_of
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
    evidence = evidence_of(last(trial_of(lambda step: START * 0.05**step, range(2))))
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
    evidence = evidence_of(last(trial))
    assert (evidence.tensor, evidence.worker) == ("b.weight", "worker_1")


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
    evidence = evidence_of(last(trial, num_steps=num_steps))
    assert evidence.sentence.endswith(f"since step {reference}")


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
    assert evidence_of(last(trial_of(fixed, **learning))).value == 0


def test_a_model_none_of_whose_weights_changes_is_an_issue() -> None:
    evidence = evidence_of(last(trial_of(lambda _: START, **{"b.weight": lambda _: START * 2})))
    assert evidence.sentence == f"{WEIGHT}: update / weight 0 < 1e-08, since step 1"


def test_updates_that_statistics_prove_healthy_cost_no_read() -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    rng = np.random.default_rng(0)
    weight = rng.normal(size=1000).astype(np.float32)
    for step in range(4):
        weight = weight + rng.normal(0, 1e-3, 1000).astype(np.float32)
        trial.step(step, {WEIGHT: weight})
    found = trial.outcomes(WeightUpdateRatio())
    assert [type(outcome) for outcome in found] == [NotEvaluated] + [Passed] * 3
    assert not store.gets("events/")


def test_an_update_that_no_statistic_shows_is_found_in_the_values() -> None:
    rng = np.random.default_rng(0)
    trial = trial_of(lambda _: rng.permutation(START))
    assert isinstance(last(trial), Passed)


def test_without_values_only_what_statistics_prove_is_judged() -> None:
    def outcome_of(*values: Any) -> Outcome:
        return last(make_run(*({WEIGHT: value} for value in values), save_values=False))

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


def test_why_no_weight_can_be_compared() -> None:
    trials = (
        trial_of(lambda step: START * (1.0 if step else np.nan), range(2)),
        trial_of(lambda step: START[step:], range(2)),
        with_maxima(WEIGHT, num_steps=2),
    )
    for trial in trials:
        reason = reason_of(last(trial))
        assert reason.startswith("no weight can be compared with step 0: save their values")


EVERYTHING = UnchangedTensor(tensor_regex=(".*",))
FIXED = np.linspace(-1, 1, 7, dtype=np.float32)


class TestUnchangedTensorContract(RuleContract):
    def make_rule(self) -> Rule:
        return UnchangedTensor(collection_names=("weights", "losses"))

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "Net_fc.weight": FIXED, "gradient/Net_fc.weight": FIXED}


def unchanged(steps: Iterable[dict[str, Any]], **options: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step, tensors in enumerate(steps):
        trial.step(step, tensors, **options)
    return trial


def kinds(trial: TrialBuilder, rule: UnchangedTensor = EVERYTHING) -> list[type]:
    return [type(outcome) for outcome in trial.outcomes(rule)]


def moving(step: int, size: int = 7) -> np.ndarray[Any, Any]:
    return np.random.default_rng(step).normal(size=size).astype(np.float32)


def test_original_fixture_fires_at_the_third_step_only() -> None:
    """Constant at steps 0, 1, 2; then other tensors, each once: those before have no value."""
    trial = unchanged([{"a": FIXED, "b": FIXED}] * 3 + [{"c": FIXED}, {"d": FIXED}, {"e": FIXED}])
    assert kinds(trial) == [NotEvaluated, NotEvaluated, IssueFound] + [NotEvaluated] * 3
    evidence = evidence_of(trial.outcomes(EVERYTHING)[2])
    assert evidence.tensor == "a"
    assert evidence.sentence == ("a: unchanged at the last 3 steps that have it; 1 more like it")
    assert (evidence.measure, evidence.value) == ("unchanged_steps", 3)


def test_steps_need_not_be_consecutive_and_each_tensor_has_its_own() -> None:
    steps = []
    for step in range(41):
        tensors: dict[str, Any] = {"loss": np.float32(step)}
        if step % 20 == 0:
            tensors["w"] = FIXED
        steps.append(tensors)
    found = kinds(unchanged(steps))
    assert [step for step, kind in enumerate(found) if kind is IssueFound] == [40]
    assert found[1:40] == [Passed] * 39


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1), min_size=1), max_size=14),
    st.integers(2, 4),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_it_finds_what_a_walk_through_all_steps_finds(
    values: list[dict[str, int]], num_steps: int, save_values: bool
) -> None:
    turned = {0: FIXED, 1: FIXED[::-1] * np.float32(1 if save_values else 2)}
    steps = [{name: turned[value] for name, value in saved.items()} for saved in values]
    rule = UnchangedTensor(tensor_regex=(".*",), num_steps=num_steps)
    found = kinds(unchanged(steps, save_values=save_values), rule)
    for step, saved in enumerate(values):
        last = {name: [v[name] for v in values[: step + 1] if name in v] for name in saved}
        is_issue = any(
            len(seen) >= num_steps and len(set(seen[-num_steps:])) == 1 for seen in last.values()
        )
        assert (found[step] is IssueFound) == is_issue, step


def test_a_change_that_no_statistic_shows_is_found_in_the_values() -> None:
    steps = [{"a": FIXED}, {"a": FIXED[::-1]}, {"a": FIXED}]
    assert kinds(unchanged(steps)) == [NotEvaluated, Passed, Passed]


def test_without_values_equal_statistics_count_as_unchanged() -> None:
    assert kinds(unchanged([{"a": FIXED}] * 3, save_values=False))[2] is IssueFound
    steps = [{"a": moving(step)} for step in range(3)]
    assert kinds(unchanged(steps, save_values=False))[1:] == [Passed, Passed]
    steps = [{"a": FIXED * np.float32(1 + 1e-6 * step)} for step in range(3)]
    assert kinds(unchanged(steps, save_values=False))[2] is NotEvaluated
    assert kinds(unchanged(steps))[2] is IssueFound


def test_a_change_that_statistics_prove_costs_no_read() -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    for step in range(5):
        trial.step(step, {"a": moving(step, 1000), "loss": np.float32(step)})
    rule = UnchangedTensor(tensor_regex=("a", "loss"))
    assert kinds(trial, rule)[1:] == [Passed] * 4
    assert not store.gets("events/")


def test_nan_equals_nan_only_if_asked_for() -> None:
    steps = [{"a": [np.nan, 1.0]}] * 3
    assert kinds(unchanged(steps))[2] is Passed
    rule = UnchangedTensor(tensor_regex=("a",), equal_nan=True)
    assert kinds(unchanged(steps), rule)[2] is IssueFound
    assert kinds(unchanged([{"a": [np.inf, 1.0]}] * 3))[2] is IssueFound


def test_another_shape_is_a_change() -> None:
    steps = [{"a": np.zeros(4)}, {"a": np.zeros((2, 2))}, {"a": np.zeros(4)}]
    assert kinds(unchanged(steps))[2] is Passed


@pytest.mark.parametrize("value", [np.empty((0, 3)), np.array(["a", "b"])])
def test_what_has_no_numbers_is_not_judged(value: Any) -> None:
    assert kinds(unchanged([{"a": value}] * 4)) == [NotEvaluated] * 4


def test_frozen_weights_are_no_issue_where_gradients_tell() -> None:
    def steps(**more: Any) -> list[dict[str, Any]]:
        return [
            {"Net_a.weight": FIXED, "Net_b.weight": moving(step), "gradient/Net_b.weight": FIXED}
            | {name.replace("__", "/"): value for name, value in more.items()}
            for step in range(3)
        ]

    rule = UnchangedTensor(collection_names=("weights",))
    assert kinds(unchanged(steps()), rule)[2] is Passed
    with_gradient = [{**tensors, "gradient/Net_a.weight": FIXED} for tensors in steps()]
    assert kinds(unchanged(with_gradient), rule)[2] is IssueFound
    without_any = [{"Net_a.weight": FIXED, "Net_b.weight": moving(step)} for step in range(3)]
    assert kinds(unchanged(without_any), rule)[2] is IssueFound


def test_steps_of_evaluation_are_ignored() -> None:
    trial = TrialBuilder()
    for step in range(6):
        mode = ModeKeys.EVAL if step in (1, 2, 3) else ModeKeys.TRAIN
        trial.step(step, {"w": FIXED if step < 4 else moving(step)}, mode=mode)
    found = kinds(trial)
    assert found == [NotEvaluated, *[NotApplicable] * 3, Passed, Passed]


def test_each_worker_is_judged_by_itself() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(3):
        trial.step(step, {"a": moving(step)}, worker="worker_0")
        trial.step(step, {"a": FIXED}, worker="worker_1")
    assert evidence_of(trial.outcomes(EVERYTHING)[2]).worker == "worker_1"


def test_steps_whose_files_are_gone_are_ignored() -> None:
    trial = unchanged([{"a": FIXED}] * 5)
    evaluation = Evaluation.fresh(EVERYTHING)
    for view in trial.views()[:2]:
        evaluation.feed(view)
    trial.store.delete(trial.keys[1])
    found = [type(evaluation.feed(view)) for view in trial.views()[1:]]
    assert found == [NotEvaluated, NotEvaluated, IssueFound]


def test_a_damaged_value_is_not_evaluated() -> None:
    trial = unchanged([{"a": FIXED}] * 3)
    key = event_key(2, "worker_0")
    trial.store.put(key, b"\0" * len(trial.store.get(key)))
    assert "events/" in reason_of(trial.outcomes(EVERYTHING)[2])
