"""Short runs, and what a rule says about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.testing import TrialBuilder

__all__ = ["evidence_of", "first_finding", "letters", "make_run", "reason_of"]

_LETTERS = {Passed: "P", IssueFound: "!", NotEvaluated: "-", NotApplicable: "."}


def evidence_of(outcome: Outcome) -> Evidence:
    """Return the evidence of a finding."""
    assert isinstance(outcome, IssueFound), outcome
    return outcome.evidence


def reason_of(outcome: Outcome) -> str:
    """Return why a step was not evaluated."""
    assert isinstance(outcome, NotEvaluated), outcome
    return outcome.reason


def letters(outcomes: Iterable[Outcome]) -> str:
    """Return a letter per step: P passed, ! found, - not evaluated, . not applicable."""
    return "".join(_LETTERS[type(outcome)] for outcome in outcomes)


def first_finding(rule: Rule, trial: TrialBuilder) -> Evidence:
    """Return the evidence of the first finding in a run."""
    return next(o.evidence for o in trial.outcomes(rule) if isinstance(o, IssueFound))


def make_run(
    *steps: Mapping[str, Any],
    collections: Mapping[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> TrialBuilder:
    """Return a run that saves these tensors at the steps 0, 1, 2 ...; options are of each step."""
    trial = TrialBuilder()
    if collections is not None:
        trial.collections(**collections)
    for number, tensors in enumerate(steps):
        trial.step(number, tensors, **options)
    return trial
