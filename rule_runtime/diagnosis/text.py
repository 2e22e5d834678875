"""Says a diagnosis in words: the cause, its evidence in order of time, and one change."""

from __future__ import annotations

from typing import Final

from rule_runtime.diagnosis.diagnosis import Diagnosis, Symptom

__all__ = ["alternative", "finding_line", "headline"]

_WORKER: Final = "worker_"
_COUNTS: Final = "optimizer_steps/"
"""Prefix of what the hook counts, which no layer of the script has."""


def headline(diagnosis: Diagnosis) -> str:
    """Return the cause with the step at which it was seen first, and the tensor and rank."""
    first = diagnosis.explanations[0]
    evidence = first.shown_by.evidence
    is_named = first.cause.is_of_tensor and not evidence.tensor.startswith(_COUNTS)
    where = f" in {evidence.tensor}" if is_named and evidence.tensor else ""
    rank = evidence.worker.removeprefix(_WORKER)
    of_rank = f", on rank {rank}" if rank not in ("", "0") else ""
    text = f"{first.cause.title}: seen at step {evidence.first_step}{where}{of_rank}"
    return " ".join(text.split())  # names come from files


def finding_line(symptom: Symptom) -> str:
    """Return a finding in one line, with the step at which it was made first."""
    evidence = symptom.evidence
    return f"{symptom.name} at step {evidence.first_step}: {evidence.sentence}"


def alternative(diagnosis: Diagnosis) -> str:
    """Return the next cause and its change; "" if no other explains as many findings."""
    if len(diagnosis.explanations) == 1:
        return ""
    first, second = diagnosis.explanations[:2]
    is_as_good = len(second.symptoms) == len(first.symptoms)
    if not is_as_good or second.shown_by is first.shown_by or second.change == first.change:
        return ""
    return (
        f"If that does not help: {second.cause.title[0].lower()}{second.cause.title[1:]}. "
        f"{second.change}"
    )
