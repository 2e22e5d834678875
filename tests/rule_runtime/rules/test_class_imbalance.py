from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.class_imbalance import ClassImbalance
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix


class TestClassImbalanceContract(RuleContract):
    def make_rule(self) -> ClassImbalance:
        return ClassImbalance(samples=100)

    def make_tensors(self, step: int, worker: int) -> dict[str, Any]:
        labels = np.random.default_rng(step + worker).integers(0, 3, 30)
        return {"labels": labels, "predictions": np.eye(3)[labels] * 0.7 + 0.1}

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:
        labels = np.where(np.arange(30) == 0, 2, np.minimum(tensors["labels"], 1))
        return {**tensors, "labels": labels}


def outcomes(rule: ClassImbalance, *steps: dict[str, Any]) -> list[Outcome]:
    return make_run(*steps).outcomes(rule)


def labels_of(*counts: int) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts)


def test_the_original_s_test_of_2019() -> None:
    """990 zeros and 10 ones in a step, the same tensor for labels and predictions."""
    rule = ClassImbalance(labels_regex=("^y$",), predictions_regex=("^y$",))
    evidence = evidence_of(*outcomes(rule, {"y": labels_of(990, 10)}))
    assert (evidence.tensor, evidence.measure, evidence.value) == ("y", "imbalance", 99)
    assert evidence.sentence == (
        "y: class 0 has 990 labels, and class 1 has 10, a ratio of 99, more than 10"
    )


@pytest.mark.parametrize(
    ("weight", "ratio"), [(None, "99"), (5.0, "19.8 by weight"), (0.5, "99"), (10.0, "")]
)
def test_the_ratio_of_weighted_rows_is_that_of_their_weights(
    weight: float | None, ratio: str
) -> None:
    labels, trial = np.repeat([0, 1], [1980, 20]), TrialBuilder()
    tensors = {"training_data/Label": labels}
    if weight is not None:
        tensors["training_data/Weight"] = np.where(labels == 1, weight, 1).astype(np.float32)
    trial.step(0, tensors)
    (outcome,) = trial.outcomes(ClassImbalance())
    words = outcome.evidence.sentence if isinstance(outcome, IssueFound) else ""
    expected = f"class 0 has 1980 labels, and class 1 has 20, a ratio of {ratio}, more than 10"
    assert words == (f"training_data/Label: {expected}" if ratio else "")


def test_the_ratio_must_be_larger_than_the_threshold() -> None:
    rule = ClassImbalance(samples=1)
    assert isinstance(outcomes(rule, {"labels": labels_of(100, 10)})[0], Passed)
    assert isinstance(outcomes(rule, {"labels": labels_of(101, 10)})[0], IssueFound)


def test_labels_are_counted_over_steps_until_there_are_enough() -> None:
    steps = [{"labels": np.roll(labels_of(90, 10), at)} for at in range(3)]
    steps.append({"labels": labels_of(0, 200)})
    found = outcomes(ClassImbalance(samples=250, threshold_imbalance=8), *steps)
    assert [type(o) for o in found] == [NotEvaluated, NotEvaluated, IssueFound, Passed]
    assert found[1] == NotEvaluated("needs 250 labels, had 200", needs_more=True)
    exactly = outcomes(ClassImbalance(samples=200), *steps)
    assert [type(o) for o in exactly][:2] == [NotEvaluated, Passed]


@pytest.mark.parametrize(("threshold", "fires"), [(0.7, True), (0.75, False), (0.749, True)])
def test_a_class_that_is_mostly_predicted_wrongly(threshold: float, fires: bool) -> None:
    labels, predictions = labels_of(4, 4), np.array([0, 0, 0, 0, 0, 0, 0, 1])
    rule = ClassImbalance(samples=8, threshold_misprediction=threshold)
    (outcome,) = outcomes(rule, {"labels": labels, "predictions": predictions})
    assert isinstance(outcome, IssueFound if fires else Passed)
    if isinstance(outcome, IssueFound):
        assert (outcome.evidence.measure, outcome.evidence.value) == ("misprediction", 0.75)
        assert outcome.evidence.sentence.startswith(
            "labels: 3 of 4 examples of class 1 are predicted wrongly, a share larger than 0.7"
        )


def test_mispredictions_are_of_the_labels_that_came_with_a_prediction() -> None:
    rule = ClassImbalance(samples=8)
    wrong = {"labels": labels_of(4, 4), "predictions": 1 - labels_of(4, 4)}
    found = outcomes(rule, {"labels": labels_of(40, 40)}, wrong)
    assert [type(outcome) for outcome in found] == [Passed, IssueFound]


def test_the_only_class_that_came_is_one_of_more() -> None:
    labels = np.zeros(600)
    passed, found = outcomes(
        ClassImbalance(), {"labels": labels}, {"labels": labels, "predictions": labels + 0.3}
    )
    assert isinstance(passed, Passed)
    assert isinstance(found, IssueFound)
    assert found.evidence.value == np.inf
    assert found.evidence.sentence == (
        "labels: class 0 has 1200 labels, and none of the other 1 classes has any"
    )


@pytest.mark.parametrize(
    ("loss", "dtype", "is_found"),
    [(0.5, np.float32, False), (0.01, np.float32, True), (0.5, np.int64, True)],
)
def test_constant_labels_that_no_model_learns_may_be_made_up(
    loss: float, dtype: type, is_found: bool
) -> None:
    tensors = {
        "labels": np.ones(600, dtype),
        "predictions": np.full(600, 0.6),
        "BinaryCrossentropyLoss_output_0": np.float32(loss),
    }
    (outcome,) = outcomes(ClassImbalance(), tensors)
    assert isinstance(outcome, IssueFound if is_found else Passed)


def test_one_hot_labels_and_argmax() -> None:
    labels = labels_of(300, 300)
    right = {"labels": np.eye(2)[labels], "predictions": np.eye(2)[labels] * 0.4 + 0.3}
    assert isinstance(outcomes(ClassImbalance(), right)[0], Passed)
    wrong = {**right, "predictions": 0.7 - right["predictions"]}
    assert isinstance(outcomes(ClassImbalance(), wrong)[0], IssueFound)
    smooth = {"labels": right["labels"] * 0.8 + 0.1, "predictions": wrong["predictions"]}
    assert isinstance(outcomes(ClassImbalance(), smooth)[0], NotEvaluated)
    assert isinstance(outcomes(ClassImbalance(argmax=True), smooth)[0], IssueFound)


def test_modes_are_counted_by_themselves_and_workers_together() -> None:
    trial = TrialBuilder(num_workers=2)
    for worker in ("worker_0", "worker_1"):
        trial.step(0, {"labels": labels_of(200, 10)}, worker=worker)
        trial.step(1, {"labels": labels_of(10, 200)}, mode=ModeKeys.EVAL, worker=worker)
    rule = ClassImbalance(samples=400)
    assert [type(outcome) for outcome in trial.outcomes(rule)] == [IssueFound] * 2
    few = ClassImbalance(samples=421)
    assert [type(outcome) for outcome in trial.outcomes(few)] == [NotEvaluated] * 2


def test_several_pairs_go_by_their_names() -> None:
    good, bad = labels_of(300, 300), 1 - labels_of(300, 300)
    tensors = {"b_labels": bad, "a_labels": good, "a_predictions": good, "b_predictions": bad}
    assert isinstance(outcomes(ClassImbalance(), tensors)[0], Passed)
    evidence = evidence_of(*outcomes(ClassImbalance(), {**tensors, "b_predictions": good}))
    assert evidence.tensor == "b_labels"
    (outcome,) = outcomes(ClassImbalance(), {**tensors, "c_labels": good})
    assert outcome == NotEvaluated(
        "3 tensors of labels and 2 of predictions were saved: set labels_regex and "
        "predictions_regex to equal numbers of tensors"
    )


def test_no_more_than_4_pairs_and_1024_classes_are_counted() -> None:
    tensors = {f"{number}_labels": labels_of(600, 600) for number in range(4)}
    late = {"9_labels": labels_of(900, 1)}
    assert [type(o) for o in outcomes(ClassImbalance(), tensors, late)] == [Passed, NotEvaluated]
    many, (outcome,) = np.arange(1024), outcomes(ClassImbalance(), {"labels": np.arange(1025)})
    assert outcome == NotEvaluated("labels: there are more than 1024 classes")
    assert isinstance(outcomes(ClassImbalance(), {"labels": many})[0], Passed)


def test_what_are_no_classes_is_not_evaluated() -> None:
    for tensors, reason in (
        ({"labels": [0.5] * 600}, "labels: labels are not classes: 0.5 is among them"),
        ({"labels": [-1] * 600}, "labels: there is no label"),
        ({"weights": [1]}, "no labels named .*labels were saved: save the collection labels"),
        (
            {"labels": [158.0] * 600, "predictions": [130.5] * 600},
            "labels: predictions are neither classes nor probabilities of two classes",
        ),
    ):
        assert outcomes(ClassImbalance(), tensors)[0] == NotEvaluated(reason)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=15),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 40),
    st.floats(1, 5),
    st.floats(0.01, 1),
)
def test_as_the_definition(
    steps: Sequence[Sequence[tuple[int, int]]], samples: int, ratio: float, share: float
) -> None:
    rule = ClassImbalance(samples=samples, threshold_imbalance=ratio, threshold_misprediction=share)
    seen: list[tuple[int, int]] = []
    written = []
    expected = []
    for examples in steps:
        seen += examples
        labels = [label for label, _ in seen]
        counts = {label: labels.count(label) for label in labels}
        wrong = {
            label: sum(predicted != label for of, predicted in seen if of == label)
            for label in counts
        }
        tells_more = max(predicted for _, predicted in examples) > 0
        is_bad = max(counts.values()) / min(counts.values()) > ratio
        is_bad |= len(counts) == 1 and tells_more
        is_bad |= any(wrong[label] / counts[label] > share for label in counts)
        judged_as = IssueFound if is_bad else Passed
        expected.append(judged_as if len(seen) >= samples else NotEvaluated)
        columns = [np.array(column) for column in zip(*examples, strict=True)]
        written.append(dict(zip(("labels", "predictions"), columns, strict=True)))
    assert [type(outcome) for outcome in outcomes(rule, *written)] == expected


def test_on_what_the_hook_for_xgboost_writes(tmp_path: Path) -> None:
    objective = {"objective": "binary:logistic"}
    whole = matrix("breast_cancer")
    rare = np.flatnonzero(whole.get_label() == 0)[:20]
    common = np.flatnonzero(whole.get_label() == 1)
    for name, rows, fires in (
        ("whole", np.arange(whole.num_row()), False),
        ("rare", np.concatenate([rare, common]), True),
    ):
        validation = whole.slice(rows)
        trial = boost(
            tmp_path / name,
            "labels",
            "predictions",
            data=whole,
            validation=validation,
            **objective,
        )
        state = judged(trial, ClassImbalance(samples=300))  # the same rows in each round
        assert (state.evidence is not None) == fires
        assert state.counts.evaluated > 2


def test_the_same_rows_in_each_round_are_counted_once() -> None:
    # 22 rows, 21 of one class: as the validation rows of boosted trees, round after round.
    trial = TrialBuilder()
    labels = np.array([1] * 21 + [0])
    for step in range(30):
        trial.step(step, {"labels": labels, "predictions": labels * 0.9}, mode=ModeKeys.EVAL)
    outcomes = trial.outcomes(ClassImbalance())
    assert outcomes[20] == NotEvaluated("needs 500 labels, had 462", needs_more=True)
    assert isinstance(outcomes[-1], Passed)  # 21 : 1 may be chance
    shuffled = make_run(*({"labels": np.roll(labels, step)} for step in range(30)))
    assert isinstance(shuffled.outcomes(ClassImbalance())[-1], IssueFound)


RARE = labels_of(460, 440, 60, 8)
"""One label in a hundred is of the last class."""


def beside_validation(training: Any, validation: Any, **more: Any) -> list[Outcome]:
    trial = make_run({"labels": training})
    for step in range(1, 3):
        trial.step(step, {"labels": validation}, mode=ModeKeys.EVAL)
    trial.step(3, {"labels": training})
    return trial.outcomes(ClassImbalance(threshold_imbalance=30, unlike_validation=True, **more))


@pytest.mark.parametrize(
    ("training", "validation", "measure"),
    [
        (labels_of(500, 500), np.full(100, 2), "unseen"),
        (labels_of(500, 500), labels_of(20, 20, 30, 30), "unseen"),
        (labels_of(500, 500), labels_of(40, 40, 20), ""),  # a class that is new, but not most
        (labels_of(500, 500), np.full(20, 2), ""),  # too few
        (labels_of(500, 500), labels_of(50, 50), ""),
        (np.arange(500), np.arange(500, 1000), ""),  # of 1,000 classes, half are not counted yet
        (np.repeat(np.arange(600), 40), np.arange(600, 2000), ""),  # too many to be counted
    ],
)
def test_validation_of_classes_that_training_does_not_have(
    training: Any, validation: Any, measure: str
) -> None:
    trial = make_run({"labels": training})
    trial.step(1, {"labels": validation}, mode=ModeKeys.EVAL)
    trial.step(2, {"labels": training})
    last = trial.outcomes(ClassImbalance(unlike_validation=True))[-1]
    assert (last.evidence.measure if isinstance(last, IssueFound) else "") == measure
    assert isinstance(trial.outcomes(ClassImbalance())[-1], Passed)


@pytest.mark.parametrize(
    ("training", "validation", "fires"),
    [
        (RARE, RARE, False),
        (RARE, np.tile(RARE, 4), False),
        (labels_of(460, 440, 60, 1), labels_of(230, 220, 30, 4), False),  # by chance
        (RARE, labels_of(250, 250, 250), False),  # a class that validation lacks
        (RARE, labels_of(250, 250, 250, 250), True),
        (RARE, labels_of(460, 440, 60, 300), True),
        (labels_of(970, 30), labels_of(20, 20), True),
        (labels_of(20, 20), labels_of(990, 10), False),  # training is balanced
        (labels_of(990, 990, 10), labels_of(990, 990, 80), False),  # too few to matter
        (labels_of(990, 990, 10), labels_of(990, 990, 130), True),
        (labels_of(990, *[40] * 9, 10), labels_of(990, *[90] * 9, 80), False),
    ],
)
def test_an_imbalance_that_validation_has_too_is_the_nature_of_the_task(
    training: Any, validation: Any, fires: bool
) -> None:
    *_, last = beside_validation(training, validation, samples=20)
    assert isinstance(last, IssueFound if fires else Passed)
    assert not isinstance(beside_validation(training, validation)[0], IssueFound)


def test_labels_of_no_mode_are_judged_without_validation() -> None:
    trial = make_run({"labels": RARE}, mode=ModeKeys.GLOBAL)
    rule = ClassImbalance(threshold_imbalance=30, unlike_validation=True)
    assert isinstance(trial.outcomes(rule)[0], IssueFound)


@pytest.mark.parametrize(("rare", "fires"), [(29, True), (30, False), (900, False)])
def test_what_is_rare_by_nature_is_common_enough_to_be_learned(rare: int, fires: bool) -> None:
    trial = make_run({"labels": labels_of(40 * rare, rare)}, mode=ModeKeys.GLOBAL)
    for is_beside, is_found in ((True, fires), (False, True)):
        rule = ClassImbalance(threshold_imbalance=30, unlike_validation=is_beside)
        assert isinstance(trial.outcomes(rule)[0], IssueFound if is_found else Passed)


@pytest.mark.parametrize("num_rare", [1, 3, 6, 8, 9])
@pytest.mark.parametrize(("rare", "fires"), [(12, True), (20, False)])
def test_any_number_of_classes_may_be_rare(num_rare: int, rare: int, fires: bool) -> None:
    labels = labels_of(*[480] * (10 - num_rare), *[rare] * num_rare)
    rule = ClassImbalance(threshold_imbalance=30, unlike_validation=True)
    outcome = make_run({"labels": labels}, mode=ModeKeys.GLOBAL).outcomes(rule)[0]
    assert isinstance(outcome, IssueFound if fires else Passed)


@pytest.mark.parametrize(
    ("classes", "words", "fires"),
    [((960, 20), 1, True), ((900, 80), 1, False), ((960, 20), 4, False)],
)
def test_targets_of_losses_are_labels_unless_they_are_words(
    classes: tuple[int, ...], words: int, fires: bool
) -> None:
    labels, trial = labels_of(*classes), TrialBuilder()
    trial.collections(losses=("Loss_output_0$",))
    tensors = {
        "Net_input_0": np.ones((len(labels) // words, 3)),
        "CrossEntropyLoss_input_0": np.ones((len(labels), 2), dtype=np.float32),
        "CrossEntropyLoss_input_1": labels,
        "CrossEntropyLoss_output_0": np.float64(1),
    }
    for step, mode in enumerate((ModeKeys.TRAIN, ModeKeys.EVAL)):
        trial.step(step, tensors, mode=mode)
    rule = ClassImbalance(threshold_imbalance=30, unlike_validation=True)
    outcomes = trial.outcomes(rule)
    assert [isinstance(outcome, IssueFound) for outcome in outcomes] == [fires, fires]


def test_words_of_a_text_differ_by_nature() -> None:
    counts = [2 + number for number in range(40)] + [100]
    labels = np.repeat(np.arange(len(counts)), counts)
    trial = make_run({"labels": labels})
    recommended = ClassImbalance(threshold_imbalance=30.0, unlike_validation=True)
    assert not found_at(recommended, trial)
    assert found_at(ClassImbalance(threshold_imbalance=30.0), trial) == [0]
