"""Why steps were not evaluated: the reason of most of them is shown."""

from __future__ import annotations

import json

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.counts import MAX_REASONS, Counts
from rule_runtime.engine.outcome import (
    NotEvaluated,
    Outcome,
    Passed,
    status_details,
)
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView


def test_the_most_frequent_reason_is_shown() -> None:
    class SaysWhy(Rule):
        """Judges no step, for a reason that names its number."""

        def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
            if step.step == 0:
                return Passed()
            if step.step in {1, 8}:
                return NotEvaluated("the file is gone")
            return NotEvaluated(f"only {step.step} of 100 labels were saved")

    trial = TrialBuilder()
    for step in range(9):
        trial.step(step, {"a": [1.0]}, mode=ModeKeys.EVAL if step == 2 else ModeKeys.TRAIN)
    state = trial.evaluate(SaysWhy())
    assert state.counts.main_reason == "only 7 of 100 labels were saved"
    assert status_details("SaysWhy", state) == (
        "1 step evaluated, 8 not evaluated, 5 of them of mode TRAIN, because only 7 of 100 labels "
        "were saved"
    )


def test_many_kinds_of_reasons_are_bounded_and_the_most_frequent_is_kept() -> None:
    counts = Counts()
    for number in range(400):
        counts = counts.with_not_evaluated("common" if number % 2 else "x" * number, "TRAIN")
    assert len(counts.reasons) == MAX_REASONS
    most = counts.most_frequent
    assert most is not None
    assert (most.text, most.num_steps) == ("common", 200)
    assert Counts.from_json(json.loads(json.dumps(counts.to_json()))) == counts
