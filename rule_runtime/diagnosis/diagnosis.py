"""Finds the cause of a run's findings.

Rules see symptoms, of which one leads to the next. The cause is what explains most of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rule_runtime.diagnosis.causes import CAUSES, Cause
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import RuleStatus, counted

if TYPE_CHECKING:
    from rule_runtime.engine.state import EvaluationState

__all__ = [
    "Diagnosis",
    "Explanation",
    "Symptom",
    "diagnose",
    "diagnosis_of",
    "diagnosis_of_states",
    "findings_in_words",
    "symptoms_of",
    "with_line",
]

_WORKER: Final = "worker_"
_COUNTS: Final = "optimizer_steps/"
"""Prefix of what the hook counts, which no layer of the script has."""
_ON_SCALE: Final = "InputStatistics"
"""The rule whose advice is about inputs and targets that are not scaled."""
_MAX_CAUSES: Final = 3
"""Maximum causes of a diagnosis: a person tries them one after another."""


class Symptom(NamedTuple):
    """A finding.

    Attributes:
        name: Configured name of its rule.
        rule: Class name of the rule.
        evidence: The evidence.
    """

    name: str
    rule: str
    evidence: Evidence

    @property
    def line(self) -> str:
        """The finding in one line, with the step at which it was made first."""
        at = f"{self.name} at step {self.evidence.first_step}{self.on_rank}"
        return f"{at}: {self.evidence.sentence}"

    @property
    def on_rank(self) -> str:
        """The rank in words; "" for the first, which is the only one in most runs."""
        rank = self.evidence.worker.removeprefix(_WORKER)
        return f", on rank {rank}" if rank not in ("", "0") else ""

    def is_one_of(self, kinds: Iterable[str]) -> bool:
        """Return whether it is called so in the table: `Rule` or `Rule.measure`."""
        return not {self.rule, f"{self.rule}.{self.evidence.measure}"}.isdisjoint(kinds)


@dataclass(frozen=True)
class Explanation:
    """A cause with the findings that it explains.

    Attributes:
        cause: The cause.
        shown_by: The earliest finding that shows it.
        symptoms: All findings that it explains, in order of time.
        on_scale: Advice on inputs or targets that are not scaled; "" without any.
    """

    cause: Cause
    shown_by: Symptom
    symptoms: tuple[Symptom, ...]
    on_scale: str = ""

    @property
    def support(self) -> tuple[int, int]:
        """Larger for the better explanation: more findings, then an earlier first one."""
        return len(self.symptoms), -self.shown_by.evidence.first_step

    @property
    def change(self) -> str:
        """What to change."""
        return self._change_elsewhere or self.cause.change or self.shown_by.evidence.remedy

    @property
    def _change_elsewhere(self) -> str:
        """What to change at another place than the cause names; "" for nothing."""
        stops = (symptom.evidence.stopped_by for symptom in self.symptoms)
        if self.cause.is_of_gradients and (stop := next(filter(None, stops), None)):
            return f"Remove what stops the gradient: {stop}."
        return self.on_scale if self.cause.is_of_scale else ""

    @property
    def line(self) -> str:
        """File and line of the script to change; "" if unknown, or if the change names it."""
        if self._change_elsewhere:
            return ""
        kind = self.cause.line_of or ("tensor" if self.cause.is_of_tensor else "")
        return (self.shown_by.evidence.lines or {}).get(kind, "")

    @property
    def advice(self) -> str:
        """What to change, with the line to change."""
        return with_line(self.change, self.line)


@dataclass(frozen=True)
class Diagnosis:
    """The causes of a run's findings.

    Attributes:
        explanations: At most three, the best first.
        others: Findings that the first one does not explain, in order of time.
    """

    explanations: tuple[Explanation, ...]
    others: tuple[Symptom, ...]

    @property
    def first(self) -> Explanation:
        """The best explanation."""
        return self.explanations[0]

    @property
    def headline(self) -> str:
        """The cause with the step at which it was seen first, and the tensor and rank."""
        cause, evidence = self.first.cause, self.first.shown_by.evidence
        is_named = cause.is_of_tensor and not evidence.tensor.startswith(_COUNTS)
        where = f" in {evidence.tensor}" if is_named and evidence.tensor else ""
        at = f"seen at step {evidence.first_step}{where}{self.first.shown_by.on_rank}"
        text = f"{cause.title}: {at}"
        return " ".join(text.split())  # names come from files

    @property
    def alternative(self) -> str:
        """The next cause and its change; "" if no other explains as many findings."""
        for second in self.explanations[1:2]:
            is_as_good = len(second.symptoms) == len(self.first.symptoms)
            is_other = second.shown_by is not self.first.shown_by
            if is_as_good and is_other and second.change != self.first.change:
                title = second.cause.title
                return f"If that does not help: {title[0].lower()}{title[1:]}. {second.change}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the first cause with its findings, and the names of the other causes."""
        first, *further = self.explanations
        shown = first.shown_by.evidence
        return {
            "Cause": first.cause.name,
            "Headline": self.headline,
            "Step": shown.first_step,
            "Tensor": shown.tensor,
            "Worker": shown.worker,
            "Line": first.line,
            "Change": first.change,
            "Explains": [symptom.name for symptom in first.symptoms],
            "OtherCauses": [one.cause.name for one in further],
            "OtherFindings": [symptom.name for symptom in self.others],
        }


def with_line(change: str, line: str) -> str:
    """Return what to change, with the line to change if it is known."""
    text = f"{change.rstrip('.')} ({line})." if line else change
    return " ".join(text.split())  # names come from files


def symptoms_of(evidence: Mapping[str, Evidence | None]) -> list[Symptom]:
    """Return the findings of rules, by configured name: a class name in older findings."""
    return [
        Symptom(name, name.partition(":")[0] if of.rule is None else of.rule, of)
        for name, of in evidence.items()
        if of is not None
    ]


def diagnosis_of_states(states: Mapping[str, EvaluationState]) -> Diagnosis | None:
    """Return the causes of the findings in the states of rules, by configured name."""
    evidence = {name: state.evidence for name, state in states.items()}
    return diagnosis_of(evidence, {name: state.counts.advice for name, state in states.items()})


def diagnosis_of(
    evidence: Mapping[str, Evidence | None], advice: Mapping[str, str]
) -> Diagnosis | None:
    """Return the causes of the findings of rules, by configured name.

    Args:
        evidence: The evidence of each finding.
        advice: The advice of rules, which is no finding, but may be what to change.
    """
    by_rule = {name.partition(":")[0]: text for name, text in advice.items()}
    return diagnose(symptoms_of(evidence), on_scale=by_rule.get(_ON_SCALE, ""))


def findings_in_words(states: Mapping[str, EvaluationState]) -> str:
    """Return the cause of the findings in the states of rules, and how many rules made them."""
    num = sum(state.status is RuleStatus.ISSUES_FOUND for state in states.values())
    of_all = f"{num} of {counted(len(states), 'rule')}"
    so_far = "" if all(state.ended for state in states.values()) else " so far"
    diagnosis = diagnosis_of_states(states)
    if diagnosis is None:
        return f"{of_all} found an issue{so_far}"
    return f"{diagnosis.headline}, by {of_all}{so_far}"


def diagnose(symptoms: Iterable[Symptom], *, on_scale: str = "") -> Diagnosis | None:
    """Return the causes of findings; None without findings that the table knows.

    A cause is possible if one of its findings was made. Of the possible causes, the first is the
    one that explains most findings; then the one that was seen first; then the first in the table.

    So while a run trains, the first cause changes only if another one explains more findings.

    Args:
        symptoms: The findings.
        on_scale: Advice on inputs or targets that are not scaled. It is what to change if the
            training diverges.
    """
    found = sorted(symptoms, key=lambda symptom: symptom.evidence.first_step)
    possible = [one for cause in CAUSES if (one := _explanation(cause, found, on_scale))]
    if not possible:
        return None
    ranked = sorted(possible, key=lambda one: one.support, reverse=True)
    others = tuple(symptom for symptom in found if symptom not in ranked[0].symptoms)
    return Diagnosis(tuple(ranked[:_MAX_CAUSES]), others)


def _explanation(cause: Cause, found: list[Symptom], on_scale: str) -> Explanation | None:
    showing = [symptom for symptom in found if symptom.is_one_of(cause.shown_by)]
    if not showing:
        return None
    kinds = (*cause.shown_by, *cause.explains)
    symptoms = tuple(symptom for symptom in found if symptom.is_one_of(kinds))
    return Explanation(cause, showing[0], symptoms, on_scale)
