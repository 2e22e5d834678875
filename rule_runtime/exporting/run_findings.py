"""The findings of a run, as an exporter gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rule_runtime.diagnosis.diagnosis import diagnosis_of_states, symptoms_of, with_line
from rule_runtime.engine.state import EvaluationState

__all__ = ["Finding", "RunFindings"]


class Finding(NamedTuple):
    """What a rule found.

    Attributes:
        rule: Configured name of the rule.
        step: Step of its first finding.
        sentence: The finding in one line.
    """

    rule: str
    step: int
    sentence: str


@dataclass(frozen=True)
class RunFindings:
    """The findings of a run.

    Attributes:
        name: Name of the session, and of the run if the session has several.
        folder: Folder or URI of the session.
        headline: The cause; without a known cause, the earliest finding; "" without findings.
        change: What to change.
        line: File and line of the script to change; "" if unknown.
        has_failed: Whether the run did not complete.
        findings: The findings in order of time.
        logger_run: What names the script's own run in the tool; empty if it is unknown.
    """

    name: str
    folder: str
    headline: str = ""
    change: str = ""
    line: str = ""
    has_failed: bool = False
    findings: tuple[Finding, ...] = ()
    logger_run: Mapping[str, str] = field(default_factory=dict)

    def of_states(self, states: Mapping[str, EvaluationState]) -> RunFindings:
        """Return the run with the findings in the states of rules."""
        symptoms = symptoms_of({rule: state.evidence for rule, state in states.items()})
        if not symptoms:
            return self
        symptoms.sort(key=lambda symptom: symptom.evidence.first_step)
        diagnosis = diagnosis_of_states(states)
        if diagnosis is None:
            evidence = symptoms[0].evidence
            headline, change = symptoms[0].line, evidence.remedy
            line = (evidence.lines or {}).get("tensor", "")
        else:
            headline, change = diagnosis.headline, diagnosis.first.change
            line = diagnosis.first.line
        found = ((each.name, each.evidence.first_step, each.evidence.sentence) for each in symptoms)
        findings = tuple(Finding(*each) for each in found)
        return replace(self, headline=headline, change=change, line=line, findings=findings)

    @property
    def advice(self) -> str:
        """What to change, with the line to change."""
        return with_line(self.change, self.line)

    @property
    def markdown(self) -> str:
        """The findings as Markdown: the cause, the change, and a table."""
        if not self.findings:
            return f"**{_cell(self.name)}**: no issue found"
        rows = [
            f"| {_cell(rule)} | {step} | {_cell(sentence)} |"
            for rule, step, sentence in self.findings
        ]
        heading = f"**{_cell(self.name)}**: {_cell(self.headline)}\n\nChange: {_cell(self.advice)}"
        return "\n".join([heading, "", "| rule | first step | finding |", "|---|---|---|", *rows])


def _cell(text: str) -> str:
    """Return text, which may contain names from files, as the content of a table's cell."""
    one_line = " ".join(text.split())
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in one_line)


_SPECIAL: Final = frozenset("\\`*_[]<>|#&!")
