"""States of evaluations that cannot continue."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.engine.outcome import RuleStatus, shortened
from rule_runtime.engine.state import Progress

if TYPE_CHECKING:
    from rule_runtime.engine.outcome import Evidence
    from rule_runtime.engine.state import EvaluationState

__all__ = ["MAX_TEXT", "blocked", "given_up", "unblocked"]

MAX_TEXT: Final = 1024
"""Maximum characters of a text in a small state, as in status details."""


def blocked(state: EvaluationState, reason: str) -> EvaluationState:
    """Return the state of an evaluation that cannot continue for now; a verdict stays."""
    if state.status.is_final and not state.blocked_by:
        return state
    return replace(state, blocked_by=shortened(reason, MAX_TEXT)).with_status(RuleStatus.ERROR)


def unblocked(state: EvaluationState) -> EvaluationState:
    """Return the state of an evaluation that can continue again."""
    if not state.blocked_by:
        return state
    return replace(state, blocked_by="").with_status(RuleStatus.IN_PROGRESS)


def given_up(state: EvaluationState, reason: str) -> EvaluationState:
    """Return the state of an evaluation that can never continue, small enough for the table."""
    counts = replace(
        state.counts,
        last_reason=shortened(state.counts.last_reason, MAX_TEXT),
        last_problem=shortened(state.counts.last_problem, MAX_TEXT),
        failure=shortened(state.counts.failure, MAX_TEXT),
    )
    emptied = replace(
        state,
        progress=Progress(),
        memory={},
        evidence=None if state.evidence is None else _shortened(state.evidence),
        counts=counts,
        ended=True,
        blocked_by=shortened(reason, MAX_TEXT),
    )
    return emptied if state.status.is_final else emptied.with_status(RuleStatus.ERROR)


def _shortened(evidence: Evidence) -> Evidence:
    """Return the evidence with texts short enough for an item; names come from files."""
    texts: dict[str, Any] = {
        item.name: shortened(value, MAX_TEXT)
        for item in fields(evidence)
        if isinstance(value := getattr(evidence, item.name), str)
    }
    return replace(evidence, **texts)
