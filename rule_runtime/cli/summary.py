"""Summarises verdicts on one terminal screen: cause, advice, and the number of other rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions
from rich.containers import Lines
from rich.text import Text

from rule_runtime.cli.evaluation import displayed_status
from rule_runtime.cli.tables import harmless
from rule_runtime.diagnosis.diagnosis import Diagnosis
from rule_runtime.engine.outcome import RuleStatus, counted, status_details, without_api_prefix
from rule_runtime.engine.state import EvaluationState
from rule_runtime.reporting.run_verdicts import RunVerdicts

__all__ = ["Summary", "coverage_line", "diagnosis_text", "has_problem"]

_MAX_LINES: Final = 11
"""Maximum lines of texts without a limit of their own: advice, and causes of several runs."""
_MAX_LINES_OF_ONE: Final = 5
"""Maximum lines of one finding: a sentence and its remedy on 80 columns."""
_MAX_ENTRIES: Final = 20
"""Maximum number of texts of one run."""
_MAX_EVIDENCE: Final = 4
"""Maximum findings below a cause: the earliest, and the one that shows it."""
_FEW_EVIDENCE: Final = 3
"""Number of findings that are all shown in several lines."""
_MAX_OTHERS: Final = 2
"""Maximum findings that the cause does not explain."""


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
    """The diagnosis of each run, a few lines, and lines about the other rules and their data."""

    runs: Sequence[RunVerdicts]
    required: Collection[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the lines."""
        entries = list(self._entries())
        # Entries of a diagnosis have their own limits; the rest is divided among the others.
        open_ended = sum(limit is None for _, limit in entries)
        each = max(1, min(_MAX_LINES_OF_ONE, _MAX_LINES // max(1, open_ended)))
        is_cut, num_shown = False, _MAX_ENTRIES if len(self.runs) == 1 else _MAX_LINES
        for text, limit in entries[:num_shown]:
            lines = text.wrap(console, options.max_width, overflow="fold")
            most = limit or each
            if most == 1 and len(lines) > 1:
                text.truncate(options.max_width, overflow="ellipsis")
                lines, is_cut = Lines([text]), True
            for line in lines[:most]:
                line.rstrip()
            if len(lines) > most:
                lines[most - 1].truncate(options.max_width - 1)
                lines[most - 1].append("…")
                is_cut = True
            yield from lines[:most]
        if len(entries) > num_shown:
            yield Text(f"... and {len(entries) - num_shown} more; `-v` shows them")
        yield self._others()
        if covered := coverage_line(self.runs):
            yield Text(covered, overflow="ellipsis", no_wrap=len(self.runs) > 1)
        if is_cut:
            yield Text("`-v` shows the whole text of the findings")

    def _entries(self) -> Iterator[tuple[Text, int | None]]:
        """Yield texts with their maximum number of lines; None for a share of the screen."""
        for run in self.runs:
            prefix = harmless(f"{run.name}: ") if len(self.runs) > 1 else ""
            diagnosis = run.diagnosis
            change = "" if diagnosis is None else diagnosis.first.change
            if diagnosis is not None:
                yield from _diagnosed(diagnosis, prefix)
            for name, state in run.states.items():
                is_explained = diagnosis is not None and state.evidence is not None
                if has_problem(state) and not is_explained:
                    yield _finding(prefix, name, state), None
                elif state.counts.advice not in ("", change) and not has_problem(state):
                    yield Text(harmless(f"{prefix}advice of {name}: {state.counts.advice}")), None
                elif name in self.required and state.has_evaluated_nothing:
                    status = displayed_status(state)
                    text = harmless(f"{prefix}{status}: {name}: {state.reason}")
                    yield Text(text, style="yellow"), None

    def _others(self) -> Text:
        if len(self.runs) == 1:
            return Text(_quiet_rules(self.runs[0].states))
        quiet = [run.name for run in self.runs if not any(map(has_problem, run.states.values()))]
        text = f"{counted(len(quiet), 'run')} of {len(self.runs)} without a finding"
        return Text(f"{text}; `-v` shows the rules of each", overflow="ellipsis", no_wrap=True)


def _diagnosed(diagnosis: Diagnosis, prefix: str) -> Iterator[tuple[Text, int | None]]:
    """Yield the cause, its evidence in order of time, the change, and other findings.

    Of several runs, only the cause and the change are shown.
    """
    first = diagnosis.first
    if prefix:
        yield _line(prefix, f"{diagnosis.headline}. Change: {first.advice}", "bold red"), None
        return
    yield _line("", diagnosis.headline, "bold red"), 2
    shown = [*first.symptoms[:_MAX_EVIDENCE]]
    if first.shown_by not in shown:
        shown[-1] = first.shown_by
    for symptom in shown:
        num_lines = 3 if symptom is first.shown_by or len(shown) <= _FEW_EVIDENCE else 1
        yield _line("  ", symptom.line), num_lines
    if len(first.symptoms) > len(shown):
        more = counted(len(first.symptoms) - len(shown), "more finding")
        yield Text(f"  and {more} with the same cause; `-v` shows them"), 1
    yield _line("Change: ", first.advice, "bold"), _MAX_LINES_OF_ONE
    if other := diagnosis.alternative:
        yield _line("", other), 3
    for symptom in diagnosis.others[:_MAX_OTHERS]:
        yield _line("also: ", symptom.line), 2
    if len(diagnosis.others) > _MAX_OTHERS:
        more = counted(len(diagnosis.others) - _MAX_OTHERS, "more finding")
        yield Text(f"also: {more}; `-v` shows them"), 1


def diagnosis_text(diagnosis: Diagnosis) -> Text:
    """Return the cause and the change, whole."""
    first = diagnosis.first
    lines = [
        _line("", diagnosis.headline, "bold red"),
        _line("Change: ", first.advice, "bold"),
        _line("", diagnosis.alternative),
    ]
    return Text("\n").join(line for line in lines if line.plain)


def _line(prefix: str, text: str, style: str = "") -> Text:
    return Text.assemble((prefix, style), (harmless(" ".join(text.split())), style * (not prefix)))


def _finding(prefix: str, name: str, state: EvaluationState) -> Text:
    colour = "red" if state.status is RuleStatus.ISSUES_FOUND else "yellow"
    evidence = state.evidence
    if evidence is None:
        head, said = f"{prefix}{name}", without_api_prefix(status_details(name, state))
    else:
        head = f"{prefix}{name} at step {evidence.step}"
        said = f"{evidence.line}. {evidence.remedy}"
    head = harmless(f"{head}: ")
    return Text.assemble((head, f"bold {colour}"), harmless(" ".join(said.split())))


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
