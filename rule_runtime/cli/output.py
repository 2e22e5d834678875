"""Prints rules and verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from rule_runtime.cli.evaluation import displayed_status
from rule_runtime.cli.summary import has_problem
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.engine.outcome import RuleStatus, status_details, without_api_prefix
from rule_runtime.engine.parameters import Parameter
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState

__all__ = ["FEW_RULES", "STATUS_COLOURS", "parameters_text", "rules_table", "verdicts_table"]

STATUS_COLOURS = {
    RuleStatus.ISSUES_FOUND: "red",
    RuleStatus.NO_ISSUES_FOUND: "green",
    RuleStatus.ERROR: "yellow",
}
"""Colour of each status; other statuses have none."""
FEW_RULES: Final = 5
"""Up to this number of rules, each has its own row."""


def rules_table(
    rules: Mapping[str, type[Rule]], marked: Collection[str] = (), *, with_parameters: bool = False
) -> Records:
    """Return a table of rules, one line each, or more with parameters; a `*` marks some."""
    table = Records("rule", "what it finds", box=None)
    if with_parameters:
        table = Records("rule", "parameters", "what it finds", show_lines=True)
    for name, rule in sorted(rules.items()):
        shown = Text(f"{name} *" if name in marked else name, style="bold")
        parameters = [Text(parameters_text(rule.parameters()))] if with_parameters else []
        table.add_row(shown, *parameters, Text(rule.summary()))
    return table


def parameters_text(parameters: Iterable[Parameter]) -> str:
    """Return the parameters of a rule with their defaults and limits, one per line."""
    return "\n".join(map(_parameter, parameters))


def verdicts_table(
    states: Mapping[str, EvaluationState], unfit: Collection[str] = frozenset()
) -> Group:
    """Return a table of verdicts; many rules without a finding are summarised below it.

    An unfit rule is for another kind of run. If it was not evaluated, only its name is shown.
    """
    if len(states) <= FEW_RULES:
        return Group(_verdicts(states))
    loud = {name: state for name, state in states.items() if has_problem(state)}
    silent = {n: s for n, s in states.items() if s.has_evaluated_nothing}
    passed = [name for name in states if name not in loud and name not in silent]
    parts: list[RenderableType] = [_verdicts(loud)] if loud else []
    if passed:
        parts.append(_listed(f"no issue ({len(passed)})", ", ".join(passed)))
    advice = {name: text for name in passed if (text := states[name].counts.advice)}
    parts += [_listed(f"advice of {name}", text) for name, text in advice.items()]
    for name, state in silent.items():
        if name not in unfit:
            parts.append(_listed(f"{displayed_status(state)}: {name}", state.reason))
    others = [name for name in silent if name in unfit]
    if others:
        heading = f"not evaluated, as no neural network was trained ({len(others)})"
        parts.append(_listed(heading, ", ".join(others)))
    return Group(*parts)


def _listed(heading: str, text: str) -> Text:
    return Text.assemble((f"{heading}: ", "bold"), harmless(text))


def _verdicts(states: Mapping[str, EvaluationState]) -> Records:
    table = Records("rule", "status", "step", "details", whole=("status", "step"), show_lines=True)
    for name, state in states.items():
        evidence = state.evidence
        found = without_api_prefix(status_details(name, state))
        details = state.reason if state.has_evaluated_nothing else found
        if evidence is not None:
            details += f". {evidence.seen} {evidence.remedy}"
        table.add_row(
            Text(name),
            Text(displayed_status(state), style=STATUS_COLOURS.get(state.status, "")),
            Text("" if evidence is None else str(evidence.step)),
            Text(details),
        )
    return table


def _parameter(parameter: Parameter) -> str:
    default = parameter.default
    if parameter.is_required:
        shown = "(required)"
    elif isinstance(default, tuple):
        shown = f"= {','.join(map(str, default)) or 'none'}"
    else:
        shown = f"= {'none' if default is None else default}"
    limits = " and ".join(str(constraint) for constraint in parameter.constraints)
    unit = f" {parameter.unit}" if parameter.unit else ""
    return f"{parameter.name} {shown}{unit}" + (f" ({limits})" if limits else "")
