"""What is kept between two steps, and what happens to files that are gone or many."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import ObjectNotFoundError, StorageError
from hook_layer.storage.memory import MemoryStore
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine import registry, run_feed
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import (
    Failed,
    IssueFound,
    Missing,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
    status_details,
)
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.engine.step_bounds import StepBounds
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.rules.overfit import Overfit
from rule_runtime.rules.stalled_training_rule import StalledTrainingRule
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.outcomes import make_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def evaluation_of(change: Callable[[Memory], None]) -> Evaluation:
    class Remembers(Rule):
        """Changes its memory as the step says."""

        def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
            change(memory)
            return Passed()

    return Evaluation.fresh(Remembers())


def one_step() -> StepView:
    return make_run({"a": [1.0]}).views()[0]


@given(JSON)
def test_a_memory_of_json_values_is_kept_as_it_is_and_shared_with_nobody(value: Any) -> None:
    text = json.dumps(value)
    evaluation = evaluation_of(lambda memory: memory.update(value=value))
    assert isinstance(evaluation.feed(one_step()), Passed)
    assert json.dumps(evaluation.memory["value"]) == text
    assert evaluation.memory["value"] is not value or not isinstance(value, (list, dict))
    for inner in value if isinstance(value, list) else ():
        if isinstance(inner, (list, dict)):
            assert not any(inner is kept for kept in evaluation.memory["value"])


def test_numbers_of_numpy_and_tuples_become_those_of_json() -> None:
    evaluation = evaluation_of(
        lambda memory: memory.update(
            loss=np.float64(0.5), step=np.int32(3), flag=np.True_, pair=(1, (np.float32(2), "a"))
        )
    )
    evaluation.feed(one_step())
    assert evaluation.memory == {"loss": 0.5, "step": 3, "flag": True, "pair": [1, [2.0, "a"]]}
    assert [type(value) for value in evaluation.memory.values()] == [float, int, bool, list]


@pytest.mark.parametrize(
    ("key", "value"),
    [("a", np.zeros(2)), ("a", {1, 2}), ("a", b"x"), (3, 1), ("a", [1, {2: 3}]), ("a", 1j)],
)
def test_what_json_cannot_hold_is_a_failure(key: Any, value: object) -> None:
    evaluation = evaluation_of(lambda memory: memory.update({key: value}))
    outcome = evaluation.feed(one_step())
    assert isinstance(outcome, Failed)
    assert "cannot be stored" in outcome.reason
    assert evaluation.memory == {}


def test_missing_data_is_not_evaluated_and_the_memory_is_kept() -> None:
    def note_and_give_up(memory: Memory) -> None:
        memory["steps"] = memory.get("steps", 0) + 1
        raise Missing("no loss was saved", "save the collection losses")

    evaluation = evaluation_of(note_and_give_up)
    assert evaluation.feed(one_step()) == NotEvaluated(
        "no loss was saved: save the collection losses"
    )
    assert (evaluation.memory, evaluation.counts.not_evaluated) == ({"steps": 1}, 1)


def test_a_fact_of_a_step_is_computed_once() -> None:
    step = one_step()
    assert step.fact(list_of_names) is step.fact(list_of_names)


def list_of_names(step: StepView) -> list[str]:
    return list(step.tensors().names)


def test_a_step_whose_files_are_gone_is_counted() -> None:
    trial = TrialBuilder(num_workers=2)
    first = trial.step(0, {"a": [1.0]}, worker="worker_0")
    state = EvaluationState.initial()
    for key in (first, trial.step(5, {"a": [1.0]}, worker="worker_1")):
        reconciler = Reconciler(trial.store, ExplodingTensor(), trial.run)
        files = load_step_files(trial.store, [key])
        trial.store.delete(first)
        state = reconciler.advance(state, files)
    assert state.counts.not_evaluated == 1
    assert state.counts.last_reason == "the index files of step 0 were deleted or replaced"


def test_more_than_may_be_kept_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_run(*({"a": [1.0, np.nan if step == 4 else 0.0]} for step in range(6)))
    whole = trial.evaluate(ExplodingTensor())
    monkeypatch.setattr(run_feed, "_KEPT_BYTES", 0)
    files = load_step_files(trial.store, trial.keys)
    reconciler = Reconciler(trial.store, ExplodingTensor(), trial.run)
    state = reconciler.advance(EvaluationState.initial(), files)
    assert (state.evidence, state.counts) == (whole.evidence, whole.counts)


def test_a_second_look_at_a_long_run_takes_it_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_feed, "FILES_AT_ONCE", 3)
    trial = TrialBuilder(num_workers=2)
    for step in range(8):
        for worker in (0, 1):
            bad = step == 2 and worker == 1
            trial.step(step, {"a": [np.nan if bad else 1.0]}, worker=f"worker_{worker}")
    late = trial.keys[5]
    data = trial.store.get(late)
    trial.store.delete(late)
    reconciler = Reconciler(trial.store, ExplodingTensor(), trial.run)
    state = reconciler.advance(EvaluationState.initial(), (), ended=True)
    assert state.evidence is None
    trial.store.put(late, data)
    state = reconciler.advance(state, load_step_files(trial.store, [late]), ended=True)
    assert state.evidence is not None
    assert (state.evidence.step, state.counts.evaluated) == (2, 8)


def test_a_storage_that_fails_inside_a_rule_is_passed_on() -> None:
    class AwayStore(MemoryStore):
        is_away = False

        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            if self.is_away:
                raise StorageError("the storage is away")
            return super().get(key, start, length)

    class ReadsValues(Rule):
        """Reads a value."""

        def check(self, step: StepView, memory: Memory) -> Outcome:
            memory["sum"] = float(step.value("a").sum())
            return Passed()

    store = AwayStore("away")
    trial = TrialBuilder(store)
    trial.step(0, {"a": [1.0, 2.0]})
    (view,) = trial.views()
    evaluation = Evaluation.fresh(ReadsValues())
    store.is_away = True
    with pytest.raises(StorageError, match="away"):
        evaluation.feed(view)
    store.is_away = False
    assert isinstance(evaluation.feed(view), Passed)
    assert (evaluation.memory, evaluation.counts.evaluated) == ({"sum": 3.0}, 1)


def test_steps_out_of_bounds_are_not_judged_by_any_rule() -> None:
    trial = make_run(*({"a": [np.nan]} for _ in range(10)))
    bounds = {"start_step": "3", "end_step": "5"}
    state = trial.evaluate(registry.create_rule("ExplodingTensor", bounds))
    assert state.evidence is not None
    assert (state.evidence.first_step, state.evidence.last_step) == (3, 4)
    assert (state.counts.evaluated, state.counts.not_applicable) == (2, 8)
    assert state.counts.last_reason == "the rule evaluates only steps from 3 to before 5"
    late = trial.evaluate(registry.create_rule("ExplodingTensor", {"start_step": "500"}))
    assert late.counts.last_reason == "the rule evaluates only steps from 500 on"
    assert trial.evaluate(registry.create_rule("ExplodingTensor", {"end_step": "None"})) == (
        trial.evaluate(ExplodingTensor())
    )
    with pytest.raises(ParameterError, match="ExplodingTensor: parameter start_step is -1"):
        registry.create_rule("ExplodingTensor", {"start_step": "-1"})
    for empty in ({"start_step": "5", "end_step": "3"}, {"end_step": "0"}):
        with pytest.raises(ParameterError, match="but must be greater than start_step, which is"):
            registry.create_rule("ExplodingTensor", empty)
    overfit = registry.create_rule("Overfit", bounds | {"start_step": "7", "end_step": "9"})
    assert overfit == Overfit(start_step=7)
    assert overfit.step_bounds == StepBounds(end=9)


def test_a_subclass_names_collections_that_its_base_combines_with_parameters() -> None:
    class Own(Overfit):
        """Is saved more often."""

        collections = (CollectionConfig("losses", {"save_interval": "7"}),)

    assert Own().requires() == Own.collections
    (chosen,) = Own(tensor_regex=("mine",)).requires()
    assert chosen.parameters["include_regex"] == "mine"


def test_bounds_change_nothing_but_the_steps_that_are_judged() -> None:
    class Breaks(Rule):
        """Cannot judge anything."""

        collections = (CollectionConfig("mine"),)

        def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
            raise RuntimeError("broken")

    rule = registry.instantiate(Breaks, {"start_step": 1})
    assert rule.requires() == Breaks.collections
    trial = make_run(*({"a": [1.0]} for _ in range(2)))
    first, second = trial.outcomes(rule)
    assert isinstance(first, NotEvaluated)
    assert second == trial.outcomes(Breaks())[0]  # with the line of the rule's own file
    assert "test_evaluator.py, line" in second.reason
    silent = StalledTrainingRule(threshold=10).check_silence(20.0, 0)
    bounded = registry.create_rule("StalledTrainingRule", {"threshold": "10", "end_step": "1"})
    assert isinstance(silent, IssueFound)
    assert bounded.check_silence(20.0, 0) == silent
    assert bounded.parameters() == StalledTrainingRule.parameters()


def test_a_rule_without_bounds_is_the_rule_itself() -> None:
    for bounds in ({}, {"start_step": "0"}, {"start_step": "", "end_step": "none"}):
        assert type(registry.create_rule("ExplodingTensor", bounds)) is ExplodingTensor


def test_an_object_that_is_not_there_is_a_reason() -> None:
    class ReadsTwice(Rule):
        """Judges the first step, and misses an object at the others."""

        def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
            if step.step:
                raise ObjectNotFoundError("events/gone")
            return Passed()

    state = make_run(*({"a": [1.0]} for _ in range(3))).evaluate(ReadsTwice())
    assert status_details("ReadsTwice", state) == (
        "1 step evaluated, 2 not evaluated, all of mode TRAIN, because events/gone"
    )


def test_steps_of_other_modes_are_counted_apart_and_hide_no_reason() -> None:
    class JudgesTraining(Rule):
        """Judges training, if its tensor is there."""

        def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
            if step.mode is not ModeKeys.TRAIN:
                return NotApplicable("it is no training")
            return Passed() if step.tensors(regex=("^a$",)) else NotEvaluated("a was not saved")

    def message(*steps: tuple[ModeKeys, str]) -> str:
        trial = TrialBuilder()
        for number, (mode, name) in enumerate(steps):
            trial.step(number, {name: [1.0]}, mode=mode)
        return status_details("JudgesTraining", trial.evaluate(JudgesTraining()))

    train, evaluation = ModeKeys.TRAIN, ModeKeys.EVAL
    assert message((train, "a"), (train, "b"), (evaluation, "a"), (evaluation, "a")) == (
        "1 step evaluated, 1 not evaluated, all of mode TRAIN, because a was not saved; 2 not "
        "applicable"
    )
    assert message((train, "b"), (evaluation, "a")).endswith("JudgesTraining: a was not saved")
    assert message((evaluation, "a"), (train, "b")).endswith("JudgesTraining: a was not saved")
    assert message((evaluation, "a")).endswith("JudgesTraining: it is no training")


def test_a_name_that_is_taken_stays_with_the_built_in_rule(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Point:
        value = "elsewhere:ExplodingTensor"

        def load(self) -> type[Rule]:
            def check(self: Rule, step: StepView, memory: Memory) -> Outcome:
                return Passed()

            return type("ExplodingTensor", (Rule,), {"check": check, "__module__": "elsewhere"})

    monkeypatch.setattr(registry, "entry_points", lambda **_: [Point()])
    assert registry.available_rules()["ExplodingTensor"] is ExplodingTensor
    assert "the name is taken" in caplog.text
