"""From findings to one cause: the one that explains most of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.diagnosis.causes import CAUSES
from rule_runtime.diagnosis.diagnosis import Diagnosis, Symptom, diagnose, symptoms_of
from rule_runtime.diagnosis.text import alternative, finding_line, headline
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.registry import available_rules

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


def diagnosed(*symptoms: Symptom, before: str = "") -> Diagnosis:
    diagnosis = diagnose(symptoms, before=before)
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
        (("VanishingGradient", "DeadOptimizer", "LearningRateTooLow"), "vanishing_gradient"),
        (("LearningRateTooHigh", "DeadRelu", "VanishingGradient"), "learning_rate_too_high"),
        (("DeadRelu", "VanishingGradient", "MissingGradient"), "inactive_relu"),
        (("NonFinite.growth",), "learning_rate_too_high"),
        (("NonFinite.nan",), "not_finite"),
        (("LossSpike",), "loss_spikes"),
        (("GeneralisationGap.gap_percent", "ClassImbalance"), "rare_classes"),
        (("GeneralisationGap.gap_percent",), "overfitting"),
        (
            ("GeneralisationGap.best_validation_percent", "PlateauedLoss"),
            "labels_do_not_belong_to_inputs",
        ),
        (("LossInputMismatch", "LearningRateTooHigh", "NonFinite.inf"), "wrong_loss_formula"),
        (("PoorWeightInitialization.initial_value", "DeadRelu"), "constant_initial_weights"),
        (("PoorWeightInitialization.gain", "SaturatedActivation"), "initial_scale"),
    ],
)
def test_the_cause_explains_most_findings(kinds: tuple[str, ...], cause: str) -> None:
    found = diagnosed(*(finding(kind, step) for step, kind in enumerate(kinds)))
    assert causes(found)[0] == cause
    assert not found.others


def test_of_two_causes_that_explain_as_much_the_earlier_one_is_first() -> None:
    early, late = finding("TreeDepth", 3), finding("LabelDegenerate.distinct_labels", 9)
    found = diagnosed(late, early)
    assert causes(found) == ["trees_without_splits", "labels_of_one_class"]
    assert found.others == (late,)
    assert alternative(found).startswith("If that does not help: all labels are of one class. ")


def test_a_cause_stays_until_another_explains_more() -> None:
    first = finding("DeadRelu", 5)
    earlier = finding("SaturatedActivation", 2)  # of a slower rank
    assert causes(diagnosed(first, earlier))[0] == "saturated_units"
    assert causes(diagnosed(first, earlier, before="inactive_relu"))[0] == "inactive_relu"
    more = finding("LearningRateTooHigh", 9)
    assert causes(diagnosed(first, earlier, more, before="inactive_relu"))[0] == (
        "learning_rate_too_high"
    )


def test_a_custom_rule_has_no_cause_and_does_not_hide_one() -> None:
    own = finding("MyRule")
    assert diagnose([own]) is None
    assert diagnosed(own, finding("DeadRelu")).others == (own,)


def test_a_rule_is_known_by_its_class_whatever_its_configured_name() -> None:
    renamed = finding("my-rule", rule="DeadRelu")
    assert causes(diagnosed(renamed)) == ["inactive_relu"]
    older = finding("DeadRelu:threshold_layer=90")
    assert causes(diagnosed(older)) == ["inactive_relu"]


def test_words() -> None:
    found = diagnosed(finding("LearningRateTooHigh", 4))
    assert (
        headline(found) == "The learning rate is too high: seen at step 4 in fc.weight (worker_0)"
    )
    assert finding_line(found.explanations[0].shown_by) == (
        "LearningRateTooHigh at step 4: fc.weight: is wrong"
    )
    assert alternative(found) == ""
    assert found.to_json()["Cause"] == "learning_rate_too_high"
    assert diagnosed(finding("DeadRelu")).explanations[0].change == "Mend DeadRelu."


KINDS = sorted({kind for cause in CAUSES for kind in (*cause.shown_by, *cause.explains)})


@given(st.lists(st.tuples(st.sampled_from([*KINDS, "MyRule.x"]), st.integers(0, 99)), max_size=8))
def test_any_findings_have_at_most_three_causes(found: list[tuple[str, int]]) -> None:
    symptoms = [finding(kind, step) for kind, step in found]
    diagnosis = diagnose(symptoms)
    if diagnosis is None:
        return
    assert 1 <= len(diagnosis.explanations) <= 3
    first = diagnosis.explanations[0]
    assert first.shown_by in first.symptoms
    assert {*first.symptoms, *diagnosis.others} == {*symptoms}
    assert diagnose(reversed(symptoms)) is not None
