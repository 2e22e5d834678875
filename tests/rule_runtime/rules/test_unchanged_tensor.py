from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key
from hook_layer.storage.memory import MemoryStore
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.weight_update_ratio import UnchangedTensor
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors

EVERYTHING = UnchangedTensor(tensor_regex=(".*",))
FIXED = np.linspace(-1, 1, 7, dtype=np.float32)


class TestUnchangedTensorContract(RuleContract):
    def make_rule(self) -> Rule:
        return UnchangedTensor(collection_names=("weights", "losses"))

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "Net_fc.weight": FIXED, "gradient/Net_fc.weight": FIXED}


def trial_of(steps: Iterable[dict[str, Any]], **options: Any) -> TrialBuilder:
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
    trial = trial_of([{"a": FIXED, "b": FIXED}] * 3 + [{"c": FIXED}, {"d": FIXED}, {"e": FIXED}])
    assert kinds(trial) == [NotEvaluated, NotEvaluated, IssueFound] + [NotEvaluated] * 3
    issue = trial.outcomes(EVERYTHING)[2]
    assert isinstance(issue, IssueFound)
    assert issue.evidence.tensor == "a"
    assert issue.evidence.sentence == (
        "a: unchanged at the last 3 steps that have it; 1 more like it"
    )
    assert (issue.evidence.measure, issue.evidence.value) == ("unchanged_steps", 3)


def test_steps_need_not_be_consecutive_and_each_tensor_has_its_own() -> None:
    steps = []
    for step in range(41):
        tensors: dict[str, Any] = {"loss": np.float32(step)}
        if step % 20 == 0:
            tensors["w"] = FIXED
        steps.append(tensors)
    found = kinds(trial_of(steps))
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
    found = kinds(trial_of(steps, save_values=save_values), rule)
    for step, saved in enumerate(values):
        last = {name: [v[name] for v in values[: step + 1] if name in v] for name in saved}
        is_issue = any(
            len(seen) >= num_steps and len(set(seen[-num_steps:])) == 1 for seen in last.values()
        )
        assert (found[step] is IssueFound) == is_issue, step


def test_a_tensor_that_changes_once_begins_anew() -> None:
    steps = [{"a": value} for value in (FIXED, FIXED, FIXED + 1, FIXED + 1, FIXED + 1)]
    assert kinds(trial_of(steps)) == [NotEvaluated, NotEvaluated, Passed, NotEvaluated, IssueFound]


@pytest.mark.parametrize(("num_steps", "first"), [(2, 1), (3, 2), (5, 4)])
def test_the_number_of_steps_is_a_parameter(num_steps: int, first: int) -> None:
    rule = UnchangedTensor(tensor_regex=("a",), num_steps=num_steps)
    found = kinds(trial_of([{"a": FIXED}] * 6), rule)
    assert found == [NotEvaluated] * first + [IssueFound] * (6 - first)


@pytest.mark.parametrize(("change", "kind"), [(0.9e-5, IssueFound), (1.1e-5, Passed)])
def test_the_tolerance_is_that_of_allclose(change: float, kind: type) -> None:
    steps = [{"a": np.float64([2.0])}, {"a": np.float64([2.0 * (1 + change)])}]
    rule = UnchangedTensor(tensor_regex=("a",), num_steps=2, atol=0)
    assert kinds(trial_of(steps), rule)[1] is kind
    wide = UnchangedTensor(tensor_regex=("a",), num_steps=2, rtol=0, atol=1)
    assert kinds(trial_of(steps), wide)[1] is IssueFound


def test_a_change_that_no_statistic_shows_is_found_in_the_values() -> None:
    steps = [{"a": FIXED}, {"a": FIXED[::-1]}, {"a": FIXED}]
    assert kinds(trial_of(steps)) == [NotEvaluated, Passed, Passed]


def test_without_values_equal_statistics_count_as_unchanged() -> None:
    assert kinds(trial_of([{"a": FIXED}] * 3, save_values=False))[2] is IssueFound
    steps = [{"a": moving(step)} for step in range(3)]
    assert kinds(trial_of(steps, save_values=False))[1:] == [Passed, Passed]
    steps = [{"a": FIXED * np.float32(1 + 1e-6 * step)} for step in range(3)]
    assert kinds(trial_of(steps, save_values=False))[2] is NotEvaluated
    assert kinds(trial_of(steps))[2] is IssueFound


def test_a_change_that_statistics_prove_costs_no_read() -> None:
    class NoEvents(MemoryStore):
        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            assert not key.startswith("events/"), "a value was read"
            return super().get(key, start, length)

    trial = TrialBuilder(NoEvents("quick"))
    for step in range(5):
        trial.step(step, {"a": moving(step, 1000), "loss": np.float32(step)})
    rule = UnchangedTensor(tensor_regex=("a", "loss"))
    assert kinds(trial, rule)[1:] == [Passed] * 4


def test_nan_equals_nan_only_if_asked_for() -> None:
    steps = [{"a": [np.nan, 1.0]}] * 3
    assert kinds(trial_of(steps))[2] is Passed
    rule = UnchangedTensor(tensor_regex=("a",), equal_nan=True)
    assert kinds(trial_of(steps), rule)[2] is IssueFound
    assert kinds(trial_of([{"a": [np.inf, 1.0]}] * 3))[2] is IssueFound


def test_another_shape_is_a_change() -> None:
    steps = [{"a": np.zeros(4)}, {"a": np.zeros((2, 2))}, {"a": np.zeros(4)}]
    assert kinds(trial_of(steps))[2] is Passed


@pytest.mark.parametrize("value", [np.empty((0, 3)), np.array(["a", "b"])])
def test_what_has_no_numbers_is_not_judged(value: Any) -> None:
    assert kinds(trial_of([{"a": value}] * 4)) == [NotEvaluated] * 4


def test_frozen_weights_are_no_issue_where_gradients_tell() -> None:
    def steps(**more: Any) -> list[dict[str, Any]]:
        return [
            {"Net_a.weight": FIXED, "Net_b.weight": moving(step), "gradient/Net_b.weight": FIXED}
            | {name.replace("__", "/"): value for name, value in more.items()}
            for step in range(3)
        ]

    rule = UnchangedTensor(collection_names=("weights",))
    assert kinds(trial_of(steps()), rule)[2] is Passed
    with_gradient = [{**tensors, "gradient/Net_a.weight": FIXED} for tensors in steps()]
    assert kinds(trial_of(with_gradient), rule)[2] is IssueFound
    without_any = [{"Net_a.weight": FIXED, "Net_b.weight": moving(step)} for step in range(3)]
    assert kinds(trial_of(without_any), rule)[2] is IssueFound


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
    issue = trial.outcomes(EVERYTHING)[2]
    assert isinstance(issue, IssueFound)
    assert issue.evidence.worker == "worker_1"


def test_steps_whose_files_are_gone_are_ignored() -> None:
    trial = trial_of([{"a": FIXED}] * 5)
    evaluation = Evaluation.fresh(EVERYTHING)
    for view in trial.views()[:2]:
        evaluation.feed(view)
    trial.store.delete(trial.keys[1])
    found = [type(evaluation.feed(view)) for view in trial.views()[1:]]
    assert found == [NotEvaluated, NotEvaluated, IssueFound]


def test_a_damaged_value_is_not_evaluated() -> None:
    trial = trial_of([{"a": FIXED}] * 3)
    key = event_key(2, "worker_0")
    trial.store.put(key, b"\0" * len(trial.store.get(key)))
    outcome = trial.outcomes(EVERYTHING)[2]
    assert isinstance(outcome, NotEvaluated)
    assert "events/" in outcome.reason


def test_the_memory_is_bounded_however_many_kinds_of_steps_there_are() -> None:
    rule = UnchangedTensor(tensor_regex=(".*",), num_steps=10)
    trial = TrialBuilder()
    for step in range(400):
        trial.step(step, {f"t{step % 37}": FIXED, "x": moving(step)})
    evaluation = Evaluation.fresh(rule)
    sizes = []
    for view in trial.views():
        evaluation.feed(view)
        sizes.append(len(json.dumps(evaluation.memory)))
    assert max(sizes) < 16 * (9 * 6 + 30)


def test_parameters() -> None:
    rule = create_rule(
        "UnchangedTensor",
        {"collection_names": "losses", "num_steps": "5", "equal_nan": "True", "rtol": "1e-3"},
    )
    assert rule == UnchangedTensor(
        collection_names=("losses",), num_steps=5, equal_nan=True, rtol=1e-3
    )
    assert rule.requires() == (CollectionConfig("losses", {"save_raw_tensor": "True"}),)
    with pytest.raises(ParameterError, match="select tensors by collection_names or tensor_regex"):
        UnchangedTensor()
    for num_steps in (1, 129):
        with pytest.raises(ParameterError, match="num_steps"):
            UnchangedTensor(tensor_regex=("a",), num_steps=num_steps)
