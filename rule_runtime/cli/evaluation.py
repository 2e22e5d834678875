"""Judging a stored run in this process, by the code that judges it in the cloud."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from hook_layer.storage.base import open_store
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.registry import create_rule
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.trial.run_files import current_run, read_end_marker

__all__ = ["ExitStatus", "evaluate_run", "exit_status", "parse_rule"]

_BETWEEN_PARAMETERS = re.compile(r",(?=[A-Za-z_]\w*=)")
"""A comma that a `key=` follows; other commas part the items of a list."""


class ExitStatus(IntEnum):
    """What the command `evaluate` tells the shell."""

    NO_ISSUE = 0
    ISSUE_FOUND = 1
    NOT_JUDGED = 2


def parse_rule(text: str) -> tuple[str, Rule]:
    """Return name and rule of `NAME[:key=value,...]`.

    Args:
        text: The rule as given on the command line.

    Raises:
        ValueError: If the rule or a parameter does not exist, or a value is not valid.
    """
    name, _, rest = text.partition(":")
    parameters: dict[str, str] = {}
    for part in _BETWEEN_PARAMETERS.split(rest) if rest else ():
        key, found, value = part.partition("=")
        if not found:
            raise ValueError(f"{text!r}: write parameters as NAME:key=value,key=value")
        parameters[key.strip()] = value
    return text, create_rule(name.strip(), parameters)


def evaluate_run(path: str, rules: Sequence[tuple[str, Rule]]) -> Mapping[str, EvaluationState]:
    """Return the final state of each rule over a stored run.

    Args:
        path: Folder or URI of the trial's root.
        rules: The rules and the names under which to report them.

    Raises:
        ValueError: If the URI cannot be opened.
        StorageError: If the storage cannot be read.
    """
    store = open_store(path)
    run = current_run(store)
    marker = read_end_marker(store)
    last = marker.sequences if marker is not None and marker.run_id == run else None
    initial = EvaluationState.initial()
    return {
        name: Reconciler(store, rule, run).advance(initial, (), ended=True, last_sequences=last)
        for name, rule in rules
    }


def exit_status(states: Iterable[EvaluationState]) -> ExitStatus:
    """Return what to tell the shell: an issue outweighs what could not be judged.

    Args:
        states: The final states.
    """
    statuses = {state.status for state in states}
    if RuleStatus.ISSUES_FOUND in statuses:
        return ExitStatus.ISSUE_FOUND
    return ExitStatus.NOT_JUDGED if RuleStatus.ERROR in statuses else ExitStatus.NO_ISSUE
