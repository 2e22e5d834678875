"""A rule that found nothing has decided only once it had what it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import (
    IssueFound,
    Missing,
    NotApplicable,
    Outcome,
    Passed,
    RuleStatus,
    counted,
    is_insufficient,
    needs_more,
    status_details,
    without_api_prefix,
)
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_evaluations import as_text, states_file_by_file
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.outcomes import make_run

LABELS = 500


class Patient(Rule):
    """Does at each step what its loss says, and needs what its parameters say."""

    saved_steps: int = 1
    validation_passes: int = 0
    steps: int = 0
    labels: int = 0

    def needs(self) -> Needs:
        return Needs(
            saved_steps=self.saved_steps,
            validation_passes=self.validation_passes,
            steps=self.steps,
            elements=self.labels,
            noun="label",
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        says = str(step.value("says"))
        memory["labels"] = memory.get("labels", 0) + 40
        if says == "issue":
            return IssueFound("says: it is bad", measure="says", remedy="Say something else.")
        if says == "missing":
            raise Missing("no loss was saved")
        if says == "other mode":
            return NotApplicable("another mode")
        if memory["labels"] < self.labels:
            raise self.needs().too_few(memory["labels"])
        return Passed("say more" if says == "advice" else "", has_decided=says == "certain")


def run_of(*says: str, every: int = 1) -> TrialBuilder:
    trial = TrialBuilder()
    for number, what in enumerate(says):
        trial.step(number * every, {"says": what}, mode_step=number * every)
    return trial


def state_of(*says: str, every: int = 1, **needs: Any) -> EvaluationState:
    return run_of(*says, every=every).evaluate(Patient(**needs))


@pytest.mark.parametrize(
    ("num_steps", "needs", "reason"),
    [
        (2, {"saved_steps": 3}, "needs 3 saved steps, had 2"),
        (1, {"validation_passes": 2}, "needs 2 finished validation passes, had 1"),
        (5, {"steps": 100}, "needs 100 steps, had 40"),
        (10, {"saved_steps": 12, "steps": 50}, "needs 12 saved steps, had 5: after 50 steps"),
        (3, {"labels": LABELS}, "needs 500 labels, had 120"),
    ],
)
def test_a_run_that_is_too_short_is_not_evaluated_yet(
    num_steps: int, needs: dict[str, int], reason: str
) -> None:
    state = state_of(*["fine"] * num_steps, every=10, **needs)
    assert (state.status, state.needs_more) == (RuleStatus.ERROR, True)
    assert (state.counts.evaluated, state.counts.not_evaluated) == (0, 0)
    assert state.reason == reason
    details = status_details("Patient", state)
    assert is_insufficient(details)
    assert needs_more(details)
    assert without_api_prefix(details) == reason


def test_steps_before_the_first_decision_are_no_problem_of_a_rule_that_decided() -> None:
    state = state_of(*["fine"] * 5, saved_steps=3)
    assert (state.status, state.needs_more) == (RuleStatus.NO_ISSUES_FOUND, False)
    assert status_details("Patient", state) == "3 steps evaluated, 0 not evaluated"


def test_while_a_run_continues_its_details_say_what_is_needed() -> None:
    *_, state, _ = states_file_by_file(run_of("fine", "missing"), lambda: Patient(saved_steps=3))
    assert state.status is RuleStatus.IN_PROGRESS
    assert status_details("Patient", state) == (
        "not evaluated yet: needs 3 saved steps, had 1; 0 steps evaluated, 1 not evaluated, all of "
        "mode TRAIN, because no loss was saved"
    )


def test_a_finding_counts_at_once() -> None:
    state = state_of("fine", "issue", "fine", saved_steps=10, steps=100)
    assert state.status is RuleStatus.ISSUES_FOUND
    assert state.evidence is not None
    assert (state.evidence.step, state.counts.evaluated) == (1, 2)


def test_advice_counts_before_the_needs_are_met() -> None:
    state = state_of("advice", "fine", saved_steps=3)
    assert (state.counts.advice, state.counts.evaluated) == ("say more", 0)


def test_a_rule_can_decide_before_its_needs_are_met() -> None:
    state = state_of("certain", "fine", saved_steps=9)
    assert (state.status, state.counts.evaluated) == (RuleStatus.NO_ISSUES_FOUND, 2)


def test_only_steps_with_the_rules_data_count() -> None:
    says = ["other mode", "fine", "missing", "fine"]
    assert state_of(*says, saved_steps=3).reason == "needs 3 saved steps, had 2"
    assert state_of(*says, saved_steps=2).status is RuleStatus.NO_ISSUES_FOUND


def test_steps_count_from_the_first_with_the_rules_data() -> None:
    says = ["missing"] * 5 + ["fine"] * 3
    assert state_of(*says, every=10, steps=30).reason == "needs 30 steps, had 20"


def test_a_run_without_the_rules_data_is_not_evaluated_at_all() -> None:
    state = state_of("missing", "other mode", saved_steps=3)
    assert (state.status, state.needs_more) == (RuleStatus.ERROR, False)
    assert not needs_more(status_details("Patient", state))


def test_a_rule_without_a_declaration_decides_at_its_first_step() -> None:
    assert state_of("fine").counts.evaluated == 1
    assert Rule.needs(Patient()) == Needs()


def test_a_declaration_that_is_none_is_a_failure_of_the_rule() -> None:
    class Vague(Patient):
        def needs(self) -> Needs:
            return None  # type: ignore[return-value]

    state = run_of("fine").evaluate(Vague())
    assert state.status is RuleStatus.ERROR
    assert "needs() returned None, and must return Needs(...)" in state.counts.failure


@given(
    st.lists(st.sampled_from(["fine", "missing", "other mode", "advice", "issue"]), max_size=8),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_step_by_step_equals_one_pass(says: list[str], saved_steps: int, steps: int) -> None:
    run = run_of(*says)
    *_, last = states_file_by_file(run, lambda: Patient(saved_steps=saved_steps, steps=steps))
    whole = run.evaluate(Patient(saved_steps=saved_steps, steps=steps))
    assert as_text(last) == as_text(replace(whole, progress=last.progress))


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (Needs(), ""),
        (Needs(saved_steps=12), "12 saved steps"),
        (Needs(steps=100, saved_steps=12), "100 steps and 12 saved steps"),
        (Needs(validation_passes=2), "2 finished validation passes"),
        (Needs(elements=500, noun="label"), "500 labels"),
    ],
)
def test_needs_in_words(needs: Needs, text: str) -> None:
    assert str(needs) == text


def test_words_in_the_plural() -> None:
    assert [counted(2, noun) for noun in ("step", "validation pass")] == [
        "2 steps",
        "2 validation passes",
    ]


def test_validation_steps_do_not_shorten_the_wait() -> None:
    trial = make_run({"says": "fine"})
    trial.step(1, {"says": "other mode"}, mode=ModeKeys.EVAL)
    evaluation = Evaluation.fresh(Patient(saved_steps=2))
    assert all(evaluation.feed(view) for view in trial.views())
    assert evaluation.counts.lacking == "needs 2 saved steps, had 1"
