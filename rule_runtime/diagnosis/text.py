"""Says a diagnosis in words: the cause, its evidence in order of time, and one change."""

from __future__ import annotations

from rule_runtime.diagnosis.diagnosis import Diagnosis, Symptom

__all__ = ["alternative", "finding_line", "headline"]


def headline(diagnosis: Diagnosis) -> str:
    """Return the cause, with the tensor, step and rank at which it was seen first."""
    first = diagnosis.explanations[0]
    evidence = first.shown_by.evidence
    at = f"at step {evidence.first_step}"
    where = f" in {evidence.tensor}" if evidence.tensor else ""
    rank = f" ({evidence.worker})" if evidence.worker else ""
    return f"{first.cause.title}: seen {at}{where}{rank}"


def finding_line(symptom: Symptom) -> str:
    """Return a finding in one line, with the step at which it was made first."""
    evidence = symptom.evidence
    return f"{symptom.name} at step {evidence.first_step}: {evidence.sentence}"


def alternative(diagnosis: Diagnosis) -> str:
    """Return the next cause and its change; "" if no other explains as many findings."""
    if len(diagnosis.explanations) == 1:
        return ""
    first, second = diagnosis.explanations[:2]
    if len(second.symptoms) < len(first.symptoms):
        return ""
    return (
        f"If that does not help: {second.cause.title[0].lower()}{second.cause.title[1:]}. "
        f"{second.change}"
    )
