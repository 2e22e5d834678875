"""How the state of a rule is shown in a debugger, a notebook or a failed test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import Counts, EvaluationState
from rule_runtime.rules.non_finite import NonFinite
from tests.rule_runtime.outcomes import make_run


def test_a_finding_is_shown_on_one_line() -> None:
    trial = make_run(
        {"loss": np.float32(1)}, {"loss": np.float32(np.nan)}, collections={"losses": ("^loss",)}
    )
    state = trial.evaluate(NonFinite())
    assert state.evidence is not None
    assert repr(state) == (
        f"<EvaluationState IssuesFound, 2 evaluated, 0 not evaluated: {state.evidence.line!r}>"
    )
    assert "\n" not in repr(state)


def test_a_status_without_evidence_is_shown_with_its_counts() -> None:
    assert repr(EvaluationState.initial()) == (
        "<EvaluationState InProgress, 0 evaluated, 0 not evaluated>"
    )


def test_an_error_is_shown_with_its_reason() -> None:
    failed = replace(
        EvaluationState.initial(),
        status=RuleStatus.ERROR,
        counts=Counts(not_evaluated=3, failure="KeyError: 'loss'\nin my_rule.py"),
    )
    assert repr(failed) == (
        f"<EvaluationState Error, 0 evaluated, 3 not evaluated: {failed.counts.failure!r}>"
    )
    assert "\n" not in repr(failed)
