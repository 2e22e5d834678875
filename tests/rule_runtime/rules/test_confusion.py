from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.confusion import Confusion
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix

TEN = np.arange(10)
WRONG = np.where(TEN == 4, 7, TEN)


class TestConfusionContract(RuleContract):
    def make_rule(self) -> Confusion:
        return Confusion()

    def make_tensors(self, step: int, worker: int) -> dict[str, Any]:
        labels = np.random.default_rng(step + worker).integers(0, 3, 60)
        return {"labels": labels, "predictions": np.eye(3)[labels] * 0.7 + 0.1}

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:
        return {**tensors, "predictions": np.minimum(tensors["labels"], 1)}


def outcome_of(labels: Any, predictions: Any, rule: Confusion | None = None) -> Outcome:
    return make_run({"labels": labels, "predictions": predictions}).outcomes(rule or Confusion())[0]


def test_the_original_s_tests_of_2019() -> None:
    assert isinstance(outcome_of(TEN, TEN, Confusion(category_no=10)), Passed)
    assert isinstance(outcome_of(TEN, WRONG, Confusion(category_no=10)), IssueFound)
    loose = Confusion(category_no=10, min_diag=0, max_off_diag=0.01)
    assert isinstance(outcome_of(TEN, WRONG, loose), IssueFound)
    assert isinstance(outcome_of(TEN, TEN, loose), Passed)
    assert isinstance(outcome_of(TEN, TEN), Passed)
    assert isinstance(outcome_of(TEN, WRONG), IssueFound)


def test_the_worst_share_is_the_evidence() -> None:
    evidence = evidence_of(outcome_of(TEN, WRONG))
    assert (evidence.tensor, evidence.measure) == ("predictions", "max_off_diag")
    assert (evidence.value, evidence.threshold) == (0.5, 0.1)
    assert evidence.sentence == (
        "predictions: 0.5 of the predictions of class 7 are of class 4, more than 0.1"
    )
    evidence = evidence_of(outcome_of(TEN, WRONG, Confusion(max_off_diag=0.6)))
    assert evidence.measure == "min_diag"
    assert evidence.sentence == (
        "predictions: 0.5 of the predictions of class 7 are right, less than 0.9"
    )


@pytest.mark.parametrize(
    ("min_diag", "max_off_diag", "fires"),
    [(0.75, 0.25, False), (0.76, 0.25, True), (0.75, 0.24, True), (0, 1, False)],
)
def test_shares_are_those_of_the_predicted_class(
    min_diag: float, max_off_diag: float, fires: bool
) -> None:
    """Of four examples predicted as class 1, one is of class 0; class 2 is never predicted."""
    labels, predictions = [0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]
    rule = Confusion(min_diag=min_diag, max_off_diag=max_off_diag, category_no=3)
    outcome = outcome_of(labels, predictions, rule)
    assert isinstance(outcome, IssueFound if fires else Passed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_as_the_definition(
    examples: list[tuple[int, int]], min_diag: float, max_off_diag: float
) -> None:
    labels, predictions = zip(*examples, strict=True)
    fires = False
    for i in set(predictions):
        column = [label for label, predicted in examples if predicted == i]
        for j in range(4):
            share = column.count(j) / len(column)
            fires |= share < min_diag if i == j else share > max_off_diag
    rule = Confusion(min_diag=min_diag, max_off_diag=max_off_diag)
    outcome = outcome_of(np.array(labels), np.array(predictions), rule)
    assert isinstance(outcome, IssueFound if fires else Passed)


def test_names_and_collections_tell_the_tensors() -> None:
    trial = make_run(
        {"targets": TEN, "logits": WRONG, "labels": TEN, "predictions": TEN},
        {"targets": TEN, "logits": WRONG},
        {"targets": TEN, "logits": WRONG, "logits_2": WRONG},
        collections={"truth": ("^targets$",), "guesses": ("^logits",)},
    )
    by_collection = Confusion(labels_collection="truth", predictions_collection="guesses")
    kinds = [type(outcome) for outcome in trial.outcomes(by_collection)]
    assert kinds == [Passed, IssueFound, NotEvaluated]
    by_name = Confusion(labels="targets", predictions="logits")
    assert [type(outcome) for outcome in trial.outcomes(by_name)] == [IssueFound] * 3


def test_what_can_not_be_judged_says_why() -> None:
    reasons = {
        outcome_of(TEN, np.linspace(0, 300, 10)): "neither classes nor probabilities",
        outcome_of(TEN, TEN[:4]): "do not fit",
        outcome_of([5000], [5000]): "class 5000 exceeds the 1024 classes: set",
        outcome_of(TEN, TEN, Confusion(category_no=5)): "class 9 exceeds the 5 classes",
        outcome_of([-1], [0]): "labels and predictions are empty",
    }
    for outcome, reason in reasons.items():
        assert isinstance(outcome, NotEvaluated)
        assert reason in outcome.reason
    (outcome,) = make_run({"labels": TEN}).outcomes(Confusion())
    assert outcome == NotEvaluated(
        "the values of labels and predictions were not saved: save their values (save_raw_tensor)"
    )


def test_the_worker_with_the_worst_share_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    trial.step(0, {"labels": TEN, "predictions": WRONG}, worker="worker_0")
    worse = np.where(TEN < 4, 7, TEN)
    trial.step(0, {"labels": TEN, "predictions": worse}, worker="worker_1")
    evidence = evidence_of(*trial.outcomes(Confusion(max_off_diag=1)))
    assert (evidence.worker, evidence.value) == ("worker_1", 0.2)


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("breast_cancer", {"objective": "binary:logistic"}),
        ("iris", {"objective": "multi:softprob", "num_class": 3}),
        ("iris", {"objective": "multi:softmax", "num_class": 3}),
    ],
)
def test_on_what_the_hook_for_xgboost_writes(
    tmp_path: Path, name: str, objective: dict[str, Any]
) -> None:
    """Labels that are right are learnt by heart; with two classes swapped in half of them not."""
    data = matrix(name)
    good = boost(
        tmp_path / "good", "labels", "predictions", data=data, validation=data, **objective
    )
    state = judged(good, Confusion(min_diag=0.9))
    assert state.evidence is None
    assert state.counts.evaluated == 4
    swapped = matrix(name)
    labels = swapped.get_label()
    is_swapped = (np.arange(len(labels)) % 2 == 0) & (labels < 2)
    swapped.set_label(np.where(is_swapped, 1 - labels, labels))
    bad = boost(
        tmp_path / "bad", "labels", "predictions", data=data, validation=swapped, **objective
    )
    state = judged(bad, Confusion())
    assert state.evidence is not None
    assert state.evidence.tensor == "predictions"


def test_a_regression_is_not_evaluated(tmp_path: Path) -> None:
    data = matrix()
    trial = boost(tmp_path / "t", "labels", "predictions", data=data, validation=data)
    state = judged(trial, Confusion())
    assert state.counts.evaluated == 0
    assert "predictions are neither classes nor probabilities" in state.reason
