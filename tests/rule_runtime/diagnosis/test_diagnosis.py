"""From findings to one cause: the one that explains most of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.diagnosis.causes import CAUSES, Cause
from rule_runtime.diagnosis.diagnosis import (
    Diagnosis,
    Symptom,
    diagnose,
    diagnosis_of_states,
    symptoms_of,
)
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.state import EvaluationState

ROOT = Path(__file__).parents[3]
BY_NAME = {cause.name: cause for cause in CAUSES}
WITHOUT_CAUSE = {"SimilarAcrossRuns", "WeightUpdateRatio"}
"""A comparison of runs, and a ratio that may be too small or too large."""


def finding(kind: str, step: int = 0, rule: str | None = None) -> Symptom:
    """Return the finding `Rule.measure`."""
    name, _, measure = kind.partition(".")
    evidence = Evidence(
        step=step,
        mode="TRAIN",
        worker="worker_0",
        tensor="fc.weight",
        measure=measure or "check",
        value=1.0,
        threshold=0.0,
        sentence="fc.weight: is wrong",
        remedy=f"Mend {name}.",
        rule=rule,
    )
    return symptoms_of({name: evidence})[0]


def diagnosed(*symptoms: Symptom) -> Diagnosis:
    diagnosis = diagnose(symptoms)
    assert diagnosis is not None
    return diagnosis


def causes(diagnosis: Diagnosis) -> list[str]:
    return [one.cause.name for one in diagnosis.explanations]


def test_the_table_knows_each_rule() -> None:
    rules = available_rules()
    shown = {kind.partition(".")[0] for cause in CAUSES for kind in cause.shown_by}
    named = {kind.partition(".")[0] for cause in CAUSES for kind in cause.explains}
    assert shown | named <= set(rules)
    assert set(rules) - shown == WITHOUT_CAUSE
    assert len(BY_NAME) == len(CAUSES)


@pytest.mark.parametrize(
    ("kinds", "cause"),
    [
        (
            ("VanishingGradient.abs_mean", "DeadOptimizer.x", "LearningRateTooLow"),
            "vanishing_gradient",
        ),
        (
            ("LearningRateTooHigh.least_update_ratio", "DeadRelu", "VanishingGradient.abs_mean"),
            "learning_rate_too_high",
        ),
        (("LearningRateTooHigh.learning_rate",), "shrinkage_too_weak"),
        (("DeadRelu", "VanishingGradient.zero_gradient", "MissingGradient"), "inactive_relu"),
        (("DeadOptimizer.all_unchanged_saved_steps",), "no_optimizer_step"),
        (("TrainingLoop.all_frozen", "PlateauedLoss"), "all_frozen"),
        (("DeadOptimizer.unchanged_saved_steps",), "parameters_not_in_optimizer"),
        (("NonFinite.nan_in_inputs", "LossDiverging.loss_rise_percent"), "missing_values"),
        (("GradientNormExplosion", "LossDiverging.loss"), "loss_without_bound"),
        (("InitialLossMismatch.impossible_loss",), "outputs_do_not_fit_the_loss"),
        (("NonFinite.growth",), "learning_rate_too_high"),
        (("NonFinite.nan",), "not_finite"),
        (("LossSpike",), "loss_spikes"),
        (("GeneralisationGap.gap_percent", "ClassImbalance"), "rare_classes"),
        (("ClassImbalance.only_class",), "labels_of_one_class"),
        (("GeneralisationGap.gap_percent",), "overfitting"),
        (
            ("GeneralisationGap.best_validation_percent", "PlateauedLoss"),
            "labels_do_not_belong_to_inputs",
        ),
        (
            ("LossInputMismatch", "LearningRateTooHigh.least_update_ratio", "NonFinite.inf"),
            "wrong_loss_formula",
        ),
        (("PoorWeightInitialization.initial_value", "DeadRelu"), "constant_initial_weights"),
        (("PoorWeightInitialization.gain", "SaturatedActivation"), "initial_scale"),
    ],
)
def test_the_cause_explains_most_findings(kinds: tuple[str, ...], cause: str) -> None:
    found = diagnosed(*(finding(kind, step) for step, kind in enumerate(kinds)))
    assert causes(found)[0] == cause
    assert not found.others


def test_the_table_knows_each_measure() -> None:
    """A measure is a literal in the file of its rule, or in that of a fact."""
    folders = [ROOT / "rule_runtime" / name for name in ("rules", "facts", "numerics")]
    texts = [file.read_text() for folder in folders for file in folder.glob("*.py")]
    literals = {text for file in texts for text in re.findall(r'"(\w+)"', file)}
    literals |= {"nan_in_inputs", "inf_in_inputs"}  # composed
    kinds = {kind for cause in CAUSES for kind in (*cause.shown_by, *cause.explains)}
    assert {kind.partition(".")[2] for kind in kinds} - {""} <= literals


def test_of_two_causes_that_explain_as_much_the_earlier_one_is_first() -> None:
    early, late = finding("TreeDepth", 3), finding("LabelDegenerate.distinct_labels", 9)
    found = diagnosed(late, early)
    assert causes(found) == ["trees_without_splits", "labels_of_one_class"]
    assert found.others == (late,)
    assert found.alternative.startswith(
        "If that does not help: all labels so far are of one class. "
    )


def test_a_cause_stays_until_another_explains_more() -> None:
    first, later = finding("DeadRelu", 2), finding("SaturatedActivation", 5)
    assert causes(diagnosed(first, later))[0] == "inactive_relu"
    more = finding("LearningRateTooHigh.least_update_ratio", 9)
    assert causes(diagnosed(first, later, more))[0] == "learning_rate_too_high"


def test_the_operation_that_stops_a_gradient_is_what_to_change() -> None:
    cut = finding("MissingGradient", 9)
    cut = cut._replace(evidence=replace(cut.evidence, stopped_by="`round` at train.py:5"))
    zero = finding("VanishingGradient.zero_gradient", 9)
    explanation = diagnosed(cut, zero).explanations[0]
    assert explanation.cause.name == "gradient_is_cut"
    assert explanation.change == "Remove what stops the gradient: `round` at train.py:5."


def test_a_custom_rule_has_no_cause_and_does_not_hide_one() -> None:
    own = finding("MyRule")
    assert diagnose([own]) is None
    assert diagnosed(own, finding("DeadRelu")).others == (own,)


def test_a_rule_is_known_by_its_class_whatever_its_configured_name() -> None:
    renamed = finding("my-rule", rule="DeadRelu")
    assert causes(diagnosed(renamed)) == ["inactive_relu"]
    older = finding("DeadRelu:threshold_layer=90")
    assert causes(diagnosed(older)) == ["inactive_relu"]
    assert diagnose([finding("DeadRelu", rule="")]) is None  # a custom rule of the same name


def test_words() -> None:
    found = diagnosed(finding("LearningRateTooHigh.least_update_ratio", 4))
    assert found.headline == "The learning rate is too high: seen at step 4"
    assert found.first.shown_by.line == ("LearningRateTooHigh at step 4: fc.weight: is wrong")
    assert found.alternative == ""
    assert found.to_json()["Cause"] == "learning_rate_too_high"
    assert diagnosed(finding("TreeDepth")).explanations[0].change == "Mend TreeDepth."
    dead = finding("DeadRelu", 7)
    dead = dead._replace(evidence=replace(dead.evidence, worker="worker_3", tensor="a\nb"))
    assert diagnosed(dead).headline == (
        "ReLU units are never active: seen at step 7 in a b, on rank 3"
    )


@pytest.mark.parametrize(
    "kind", ["LearningRateTooHigh.least_update_ratio", "LossDiverging.loss_rise_percent"]
)
def test_data_that_is_not_scaled_is_what_to_change_if_training_diverges(kind: str) -> None:
    fresh = EvaluationState.initial()
    advice = replace(fresh, counts=replace(fresh.counts, advice="Scale the targets."))
    for name, change in ((kind.partition(".")[0], advice.counts.advice), ("DeadRelu", None)):
        found = replace(
            fresh, evidence=finding(kind.replace(kind.partition(".")[0], name)).evidence
        )
        diagnosis = diagnosis_of_states({name: found, "InputStatistics": advice})
        assert diagnosis is not None
        assert diagnosis.first.change == (change or diagnosis.first.cause.change)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_a_change_is_one(cause: Cause) -> None:
    assert not re.search(r"; or |, or (use|try|clip|raise|lower) ", cause.change)


KINDS = sorted({kind for cause in CAUSES for kind in (*cause.shown_by, *cause.explains)})


@given(st.lists(st.tuples(st.sampled_from([*KINDS, "MyRule.x"]), st.integers(0, 99)), max_size=8))
def test_any_findings_have_at_most_three_causes(found: list[tuple[str, int]]) -> None:
    symptoms = [finding(kind, step) for kind, step in found]
    diagnosis = diagnose(symptoms)
    if diagnosis is None:
        return
    assert 1 <= len(diagnosis.explanations) <= 3
    first = diagnosis.first
    assert first.shown_by in first.symptoms
    assert {*first.symptoms, *diagnosis.others} == {*symptoms}
    assert diagnose(reversed(symptoms)) is not None
