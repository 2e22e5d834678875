"""Summarises verdicts on one terminal screen: findings, advice, and the number of other rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions
from rich.text import Text

from rule_runtime.cli.evaluation import displayed_status
from rule_runtime.cli.tables import harmless
from rule_runtime.engine.outcome import RuleStatus, counted, status_details, without_api_prefix
from rule_runtime.engine.state import EvaluationState
from rule_runtime.reporting.run_verdicts import RunVerdicts

__all__ = ["Summary", "coverage_line", "has_problem"]

_MAX_LINES: Final = 11
"""Maximum lines of all findings together: 15 with the lines that follow."""
_MAX_LINES_OF_ONE: Final = 5
"""Maximum lines of one finding: a sentence and its remedy on 80 columns."""


def has_problem(state: EvaluationState) -> bool:
    """Return whether a rule found an issue or failed."""
    is_issue = state.status is RuleStatus.ISSUES_FOUND
    return is_issue or (state.status is RuleStatus.ERROR and not state.has_evaluated_nothing)


def coverage_line(runs: Sequence[RunVerdicts]) -> str:
    """Return how many rules had data; empty if that is unknown.

    Of several runs, it is one whose hook saved too little, or the one with the smallest share.
    """
    known = [(run.name, run.coverage) for run in runs if run.coverage is not None]
    if not known:
        return ""
    name, least = min(known, key=lambda each: (not each[1].is_blind, each[1].share))
    return harmless(f"{name}: {least}" if len(runs) > 1 else str(least))


@dataclass(frozen=True)
class Summary:
    """The findings of runs, a few lines each, and lines about the other rules and their data."""

    runs: Sequence[RunVerdicts]
    required: Collection[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the lines."""
        findings = list(self._findings())
        each = max(1, min(_MAX_LINES_OF_ONE, _MAX_LINES // max(1, len(findings))))
        is_cut = False
        for finding in findings[:_MAX_LINES]:
            lines = finding.wrap(console, options.max_width, overflow="fold")
            for line in lines[:each]:
                line.rstrip()
            if len(lines) > each:
                lines[each - 1].truncate(options.max_width - 1)
                lines[each - 1].append("…")
                is_cut = True
            yield from lines[:each]
        if len(findings) > _MAX_LINES:
            yield Text(f"... and {len(findings) - _MAX_LINES} more; `-v` shows them")
        yield self._others()
        if covered := coverage_line(self.runs):
            yield Text(covered, overflow="ellipsis", no_wrap=len(self.runs) > 1)
        if is_cut:
            yield Text("`-v` shows the whole text of the findings")

    def _findings(self) -> Iterator[Text]:
        for run in self.runs:
            prefix = f"{run.name}: " if len(self.runs) > 1 else ""
            for name, state in run.states.items():
                if has_problem(state):
                    yield _finding(prefix, name, state)
                elif state.counts.advice:
                    yield Text(harmless(f"{prefix}advice of {name}: {state.counts.advice}"))
                elif name in self.required and state.has_evaluated_nothing:
                    status = displayed_status(state)
                    text = harmless(f"{prefix}{status}: {name}: {state.reason}")
                    yield Text(text, style="yellow")

    def _others(self) -> Text:
        if len(self.runs) == 1:
            return Text(_quiet_rules(self.runs[0].states))
        quiet = [run.name for run in self.runs if not any(map(has_problem, run.states.values()))]
        text = f"{counted(len(quiet), 'run')} of {len(self.runs)} without a finding"
        return Text(f"{text}; `-v` shows the rules of each", overflow="ellipsis", no_wrap=True)


def _finding(prefix: str, name: str, state: EvaluationState) -> Text:
    colour = "red" if state.status is RuleStatus.ISSUES_FOUND else "yellow"
    evidence = state.evidence
    if evidence is None:
        head, said = f"{prefix}{name}", without_api_prefix(status_details(name, state))
    else:
        head = f"{prefix}{name} at step {evidence.step}"
        said = f"{evidence.line}. {evidence.remedy}"
    return Text.assemble((f"{head}: ", f"bold {colour}"), harmless(" ".join(said.split())))


def _quiet_rules(states: Mapping[str, EvaluationState]) -> str:
    early = sum(state.needs_more for state in states.values())
    silent = sum(state.has_evaluated_nothing for state in states.values()) - early
    if silent == len(states):
        return harmless(f"no rule was evaluated: {next(iter(states.values())).reason}")
    passed = len(states) - silent - early - sum(map(has_problem, states.values()))
    text = f"{counted(passed, 'rule')} found no issue"
    text += f", {early} not evaluated yet" if early else ""
    text += f", {silent} were not evaluated" if silent else ""
    return f"{text}; `-v` shows why" if early or silent else text
