from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key
from hook_layer.storage.base import Store
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.similar_across_runs import SimilarAcrossRuns
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.outcomes import evidence_of, reason_of

_folders = itertools.count()


def builder(folder: str, job: str, **options: Any) -> TrialBuilder:
    return TrialBuilder(MemoryStore.from_uri(f"memory://{folder}/{job}/debug-output"), **options)


class TestSimilarAcrossRunsContract(RuleContract):
    """The other run is the healthy one, written by two workers."""

    def make_rule(self) -> Rule:
        return SimilarAcrossRuns(other_trials=("twin",), tensor_regex=("weight", "oss"))

    def make_tensors(self, step: int, worker: int) -> Tensors:  # noqa: ARG002
        return healthy_tensors(step)

    def make_store(self) -> Store | None:
        folder = f"contract-{next(_folders)}"
        twin = builder(folder, "twin", num_workers=2)
        for worker in (0, 1):
            for saved in self.make_steps(worker):
                twin.step(
                    saved.step,
                    saved.tensors,
                    mode_step=saved.step,
                    worker=f"worker_{worker}",
                )
        return builder(folder, "judged").store

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "Net_fc.weight": tensors["Net_fc.weight"] + np.float32(0.5)}


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    return f"similar-{request.node.name}"


def outcomes(
    folder: str,
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    *,
    save_values: bool = True,
    **parameters: Any,
) -> list[Outcome]:
    one, other = builder(folder, "one"), builder(folder, "other")
    for trial, steps in ((one, ours), (other, theirs)):
        for step, tensors in enumerate(steps):
            trial.step(step, tensors, save_values=save_values)
    return one.outcomes(SimilarAcrossRuns(**{"other_trials": ("other",), **parameters}))


def test_fires_where_a_tensor_differs_from_the_other_run(folder: str) -> None:
    ours = [{"a": [1.0, 2.0], "b": [1.0]}, {"a": [1.0, 2.5], "b": [1.0]}]
    theirs = [{"a": [1.0, 2.0], "b": [1.0]}, {"a": [1.0, 2.0], "b": [1.0]}]
    passed, issue = outcomes(folder, ours, theirs)
    assert isinstance(passed, Passed)
    assert isinstance(issue, IssueFound)
    evidence = issue.evidence
    assert (evidence.step, evidence.tensor, evidence.measure) == (1, "a", "max_difference")
    assert evidence.value == pytest.approx(0.5)
    assert evidence.sentence == (
        "a: differs by 0.5 or more from run other at its step 1; 1 of 2 tensors differ"
    )


@pytest.mark.parametrize("save_values", [True, False])
@pytest.mark.parametrize(("change", "kind"), [(0.9e-5, Passed), (1.1e-5, IssueFound)])
def test_the_tolerance_is_that_of_allclose(
    folder: str, change: float, kind: type, save_values: bool
) -> None:
    ours, theirs = [{"a": np.float64(3.0 * (1 + change))}], [{"a": np.float64(3.0)}]
    (outcome,) = outcomes(folder, ours, theirs, save_values=save_values)
    assert isinstance(outcome, kind)


def test_a_difference_that_no_statistic_shows_is_found_in_the_values(folder: str) -> None:
    value = np.linspace(-1, 1, 9)
    evidence = evidence_of(*outcomes(folder, [{"a": value}], [{"a": value[::-1]}]))
    assert evidence.value == pytest.approx(2)


def test_without_values_what_statistics_do_not_prove_is_similar(folder: str) -> None:
    value = np.linspace(-1, 1, 9)
    ours = [{"a": value}, {"a": value + 1}]
    theirs = [{"a": value[::-1]}, {"a": value}]
    passed, issue = outcomes(folder, ours, theirs, save_values=False)
    assert isinstance(passed, Passed)
    assert isinstance(issue, IssueFound)
    assert issue.evidence.sentence.startswith("a: differs by 1 or more from run other")


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], Passed),
        ([np.nan, 1.0], [1.0, np.nan], IssueFound),
        ([np.inf], [np.inf], Passed),
        ([np.inf], [-np.inf], IssueFound),
        (np.zeros((2, 3)), np.zeros((3, 2)), IssueFound),
        (np.empty(0), np.empty(0), NotEvaluated),
        (np.empty(0), np.zeros(3), NotEvaluated),
        (["a", "b"], ["a", "c"], NotEvaluated),
        ([1.0], ["a"], NotEvaluated),
        (np.array([1, 2]), np.array([1.0, 2.0]), Passed),
        (np.array([True]), np.array([False]), IssueFound),
        ([1j], [-1j], IssueFound),
    ],
)
def test_every_kind_of_tensor(folder: str, one: Any, other: Any, kind: type) -> None:
    (outcome,) = outcomes(folder, [{"a": one}], [{"a": other}])
    assert isinstance(outcome, kind)


def test_what_one_run_lacks_is_ignored(folder: str) -> None:
    ours = [{"a": [1.0], "ours": [1.0]}, {"ours": [1.0]}, {"a": [1.0]}]
    theirs: list[dict[str, Any]] = [{"a": [1.0], "theirs": [2.0]}, {"a": [1.0]}]
    passed, none, late = outcomes(folder, ours, theirs)
    assert isinstance(passed, Passed)
    assert none == NotEvaluated("run 'other' has none of the tensors: save the same ones")
    assert late == NotEvaluated("run 'other' has no such step: save both runs at the same steps")


def test_another_run_that_is_missing_is_reported(folder: str) -> None:
    reason = reason_of(*outcomes(folder, [{"a": [1.0]}], [{"a": [1.0]}], other_trials=("othr",)))
    assert "othr" in reason
    assert "no step is stored at" in reason
    reason = reason_of(*outcomes(folder, [{"a": [1.0]}], [{"a": [1.0]}], other_trials=("/etc",)))
    assert "may not be read" in reason


def test_several_other_runs_and_the_parameters_of_the_service(folder: str) -> None:
    third = builder(folder, "third")
    third.step(0, {"a": [1.0], "b": [5.0]})
    uri = f"memory://{folder}/third/debug-output/"
    evidence = evidence_of(
        *outcomes(folder, [{"a": [1.0], "b": [1.0]}], [{"a": [1.0], "b": [1.0]}], other_trial_0=uri)
    )
    assert evidence.sentence.startswith(f"b: differs by 4 or more from run {uri} at its step 0")
    (issue,) = outcomes(folder, [{"b": [1.0]}], [], other_trials=(), other_trial_0="third")
    assert isinstance(issue, IssueFound)
    # One that cannot be read does not keep the others from being compared.
    (issue,) = outcomes(folder, [{"b": [1.0]}], [], other_trials=("gone", "third"))
    assert isinstance(issue, IssueFound)


def test_steps_are_those_of_the_same_mode(folder: str) -> None:
    """One run evaluates after every two steps, the other after every four."""
    one, other = builder(folder, "one"), builder(folder, "other")
    for trial, every in ((one, 2), (other, 4)):
        step = mode_step = 0
        while mode_step < 12:
            for _ in range(every):
                trial.step(step, {"a": [float(mode_step)]}, mode_step=mode_step)
                step, mode_step = step + 1, mode_step + 1
            trial.step(step, {"a": [-1.0]}, mode=ModeKeys.EVAL, mode_step=mode_step // every - 1)
            step += 1
    found = one.outcomes(SimilarAcrossRuns(other_trials=("other",)))
    modes = [view.mode for view in one.views()]
    training = [o for mode, o in zip(modes, found, strict=True) if mode is ModeKeys.TRAIN]
    assert [type(outcome) for outcome in training] == [Passed] * 12
    evaluation = [o for mode, o in zip(modes, found, strict=True) if mode is ModeKeys.EVAL]
    assert [type(outcome) for outcome in evaluation] == [Passed] * 3 + [NotEvaluated] * 3


def test_each_worker_is_compared_with_its_own_tensors(folder: str) -> None:
    one, other = builder(folder, "one", num_workers=2), builder(folder, "other", num_workers=2)
    for trial, value in ((one, 5.0), (other, 2.0)):
        trial.step(0, {"a": [1.0]}, worker="worker_0")
        trial.step(0, {"a": [value]}, worker="worker_1")
    evidence = evidence_of(*one.outcomes(SimilarAcrossRuns(other_trials=("other",))))
    assert (evidence.worker, evidence.value) == ("worker_1", 3)


def test_only_selected_tensors_are_compared(folder: str) -> None:
    ours, theirs = [{"a": [1.0], "b.weight": [1.0]}], [{"a": [2.0], "b.weight": [1.0]}]
    (outcome,) = outcomes(folder, ours, theirs, collection_names=("weights",))
    assert isinstance(outcome, Passed)
    reason = reason_of(*outcomes(folder, ours, theirs, tensor_regex=("^c$",)))
    assert reason.startswith("none of the selected tensors was saved")


def test_differences_that_statistics_prove_cost_one_read_of_each_run(folder: str) -> None:
    store = CountingStore(f"{folder}/one/debug-output")
    one, other = TrialBuilder(store), builder(folder, "other")
    one.step(0, {f"t{i}": np.full((3, 3), float(i)) for i in range(20)})
    other.step(0, {f"t{i}": np.full((3, 3), float(i + 1)) for i in range(20)})
    evidence = evidence_of(*one.outcomes(SimilarAcrossRuns(other_trials=("other",))))
    assert "20 of 20 tensors differ" in evidence.sentence
    assert len(store.gets("events/")) == 1
    assert store.exists(event_key(0, "worker_0"))
