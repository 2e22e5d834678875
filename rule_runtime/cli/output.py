"""Printing rules and verdicts."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from rule_runtime.cli.evaluation import told_status
from rule_runtime.cli.tables import Records
from rule_runtime.evaluation.outcome import RuleStatus, status_details
from rule_runtime.evaluation.parameters import Parameter
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState

__all__ = ["STATUS_COLOURS", "rules_table", "verdicts_table"]

STATUS_COLOURS = {
    RuleStatus.ISSUES_FOUND: "red",
    RuleStatus.NO_ISSUES_FOUND: "green",
    RuleStatus.ERROR: "yellow",
}
"""How each status is coloured; one that is not here is not."""


def rules_table(rules: Mapping[str, type[Rule]]) -> Records:
    """Return a table of rules with their parameters.

    Args:
        rules: The rules by name.
    """
    table = Records("rule", "parameters", "what it finds", show_lines=True)
    for name, rule in sorted(rules.items()):
        parameters = "\n".join(_parameter(parameter) for parameter in rule.parameters())
        table.add_row(Text(name), Text(parameters), Text(rule.summary()))
    return table


def verdicts_table(states: Mapping[str, EvaluationState]) -> Records:
    """Return a table of verdicts.

    Args:
        states: The final states by the names of the rules.
    """
    table = Records("rule", "status", "step", "details", whole=("status", "step"), show_lines=True)
    for name, state in states.items():
        evidence = state.evidence
        told = status_details(name, state).rpartition("\n")[2]
        details = state.reason if state.has_found_nothing_to_judge else told
        if evidence is not None:
            details += f"\n{evidence.seen} {evidence.remedy}"
        table.add_row(
            Text(name),
            Text(told_status(state), style=STATUS_COLOURS.get(state.status, "")),
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
