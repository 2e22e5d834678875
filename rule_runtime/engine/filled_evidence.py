"""Completes the evidence of a finding that a rule gave as a text alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import Evidence
from rule_runtime.engine.rule import Rule

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["filled", "filled_for_silence"]

_MEASURE: Final = "check"
"""What the value of a finding is called whose rule does not say it."""


def filled(evidence: Evidence, rule: type[Rule], step: StepView) -> Evidence:
    """Return the evidence with the step, the tensor and a remedy; one that is whole stays.

    Args:
        evidence: The evidence.
        rule: The class of the rule that found it.
        step: The step at which it was found.
    """
    if evidence.mode:
        return evidence
    rows = step.tensors()
    begin = evidence.sentence.partition(": ")[0]
    tensor = evidence.tensor or (begin if begin in rows.names else "")
    workers = dict(zip(reversed(rows.names), reversed(rows.workers), strict=True))
    if not evidence.sentence.startswith(tensor):
        evidence = replace(evidence, sentence=f"{tensor}: {evidence.sentence}")
    evidence = replace(evidence, tensor=tensor, worker=workers.get(tensor, step.workers[0]))
    return _placed(evidence, rule, step.step, step.mode)


def filled_for_silence(evidence: Evidence, rule: type[Rule], step: int) -> Evidence:
    """Return the evidence of a finding about a run that saves nothing; one that is whole stays.

    Args:
        evidence: The evidence.
        rule: The class of the rule that found it.
        step: The last step that was saved, -1 if there was none yet.
    """
    if evidence.mode:
        return evidence
    return _placed(evidence, rule, max(step, 0), ModeKeys.GLOBAL)


def _placed(evidence: Evidence, rule: type[Rule], step: int, mode: ModeKeys) -> Evidence:
    name, summary = rule.__name__, rule.summary()
    about = f"{name}: {summary}" if summary else f"Read the source of {name}."
    return replace(
        evidence,
        step=step,
        mode=mode.name,
        measure=evidence.measure or _MEASURE,
        remedy=evidence.remedy or about,
        first_step=step,
        last_step=step,
    )
