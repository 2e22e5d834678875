from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from rule_runtime.engine.outcome import Evidence, RuleStatus, is_insufficient, status_details
from rule_runtime.engine.state import Counts, EvaluationState

EVIDENCE = Evidence(
    step=500,
    mode="TRAIN",
    worker="worker_0",
    tensor="gradient/Net_conv1.weight",
    measure="abs_mean",
    value=3.1e-9,
    threshold=1e-7,
    sentence="gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07",
    remedy="try ReLU",
)


def test_details_of_a_finding_begin_with_the_originals_sentence() -> None:
    state = replace(EvaluationState.initial(), evidence=EVIDENCE, status=RuleStatus.ISSUES_FOUND)
    assert status_details("VanishingGradient", state) == (
        "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step 500 resulted "
        "in the condition being met\n"
        "gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07 (worker_0, TRAIN)"
    )


def test_the_number_within_the_mode_is_shown_if_it_differs() -> None:
    """Steps of an evaluation count, too: 500 is the 470th of training, as a loop counts them."""
    assert replace(EVIDENCE, mode_step=470).line.endswith(" (worker_0, TRAIN step 470)")
    assert replace(EVIDENCE, mode_step=500).line == EVIDENCE.line
    assert Evidence.from_json(replace(EVIDENCE, mode_step=0).to_json()).mode_step == 0
    assert "mode_step" not in EVIDENCE.to_json()  # as earlier versions wrote it


def test_details_are_cut_at_the_limit_of_the_api() -> None:
    long = replace(EVIDENCE, sentence="x" * 5000)
    state = replace(EvaluationState.initial(), evidence=long)
    details = status_details("X", state)
    assert len(details) == 1024
    assert details.endswith("...")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.25])
def test_evidence_survives_strict_json(value: float) -> None:
    evidence = replace(EVIDENCE, value=value)
    text = json.dumps(evidence.to_json(), allow_nan=False)
    again = Evidence.from_json(json.loads(text))
    assert repr(again) == repr(evidence)


def test_seen_again_keeps_the_first_finding() -> None:
    again = EVIDENCE.seen_again(510).seen_again(520)
    assert (again.step, again.first_step, again.last_step, again.count) == (500, 500, 520, 3)


def test_a_transition_is_a_change_of_status() -> None:
    state = EvaluationState.initial()
    assert (state.transition, state.is_announced) == (1, False)
    assert state.announced().is_announced
    assert state.with_status(RuleStatus.IN_PROGRESS) is state
    found = state.announced().with_status(RuleStatus.ISSUES_FOUND)
    assert (found.transition, found.announced_transition, found.is_announced) == (2, 1, False)


def test_an_error_tells_its_reason() -> None:
    counts = Counts(not_evaluated=3, last_reason="no loss was saved")
    state = replace(EvaluationState.initial(), status=RuleStatus.ERROR, counts=counts)
    assert status_details("X", state).endswith("to invoke rule X: no loss was saved")


@pytest.mark.parametrize("failing", ["failure", "blocked_by"])
def test_what_is_in_the_way_is_no_lack_of_information(failing: str) -> None:
    counts = Counts(failure="it raised") if failing == "failure" else Counts()
    blocked_by = "" if failing == "failure" else "its parameter thresold is not known"
    state = replace(
        EvaluationState.initial(), status=RuleStatus.ERROR, counts=counts, blocked_by=blocked_by
    )
    message = status_details("X", state)
    assert message == f"Evaluation of the rule X failed: {counts.failure or blocked_by}"
    assert not is_insufficient(message)
