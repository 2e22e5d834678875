"""Findings of rules in tensors of a step."""

from __future__ import annotations

from typing import Final, NamedTuple

from rule_runtime.engine.outcome import Evidence, IssueFound
from rule_runtime.engine.rule import Rule
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MAX_NAMED", "Mistake", "finding", "issue", "what_to_try"]

MAX_NAMED: Final = 5
"""Maximum number of columns or features that a finding names."""

_ADVICE: Final = "What to try:\n"


class Mistake(NamedTuple):
    """What a measure shows: the finding in words, with `{}` for numbers, and the remedy."""

    message: str
    remedy: str


def finding(
    rule: Rule,
    step: StepView,
    row: tuple[TensorRows, int],
    measured: tuple[str, float, float],
    message: str,
    *,
    remedy: str = "",
    stopped_by: str | None = None,
) -> IssueFound:
    """Return a finding in one row: the rows, and its position.

    `measured` is the name of the measure, its value and the threshold. The message follows the
    tensor's name and a colon. The default remedy is the section `What to try` of the rule.
    `stopped_by` is what keeps a gradient from the tensor, if known.
    """
    rows, at = row
    tensor = rows.names[at], rows.workers[at]
    message += f"; gradients are stopped by {stopped_by}" if stopped_by else ""
    return issue(step, tensor, measured, message, remedy or rule, stopped_by=stopped_by)


def issue(
    step: StepView,
    tensor: tuple[str, str],
    measured: tuple[str, float, float],
    message: str,
    remedy: str | Rule,
    *,
    stopped_by: str | None = None,
) -> IssueFound:
    """Return a finding in a worker's tensor; the remedy may be that of a rule. See `finding`."""
    (name, worker), (measure, value, threshold) = tensor, measured
    return IssueFound(
        Evidence(
            step=step.step,
            mode=step.mode.name,
            worker=worker,
            tensor=name,
            measure=measure,
            value=value,
            threshold=threshold,
            sentence=f"{name}: {message}",
            remedy=remedy if isinstance(remedy, str) else what_to_try(remedy),
            stopped_by=stopped_by,
        )
    )


def what_to_try(rule: Rule) -> str:
    """Return the section `What to try` of the docstring of a rule or its base."""
    texts = [(kind.__doc__ or "").partition(_ADVICE) for kind in type(rule).__mro__]
    return " ".join(next((text for _, heading, text in texts if heading), "").split())
