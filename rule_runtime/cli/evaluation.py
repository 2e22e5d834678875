"""Evaluates a stored run in this process, with the code of the cloud evaluators."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from hook_layer.storage.base import open_store
from rule_runtime.engine.outcome import (
    NOT_EVALUATED,
    NOT_EVALUATED_YET,
    RuleStatus,
    status_text,
)
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import UnknownRuleError, available_rules, create_rule
from rule_runtime.engine.rule import Rule, snake_case
from rule_runtime.engine.state import EvaluationState

__all__ = [
    "ExitStatus",
    "class_in_file",
    "class_name",
    "displayed_status",
    "evaluate_run",
    "exit_status_of_runs",
    "exit_status_of_statuses",
    "parse_rule",
]

_BETWEEN_PARAMETERS = re.compile(r",(?=[A-Za-z_]\w*=)")
"""A comma before a `key=`; other commas separate the items of a list."""
_COLON_BETWEEN = re.compile(r"=.*:[A-Za-z_]\w*=", re.DOTALL)
"""A colon instead of a comma, outside of a regular expression."""
_IN_FILE = re.compile(r"(?!\w+:\w+=)(?P<source>.+?\.py):(?P<rule>[A-Za-z_]\w*(:.*)?)", re.DOTALL)


class ExitStatus(IntEnum):
    """Exit status of `evaluate`."""

    NO_ISSUE = 0
    ISSUE_FOUND = 1
    NOT_JUDGED = 2


def parse_rule(text: str) -> tuple[str, Rule]:
    """Parse `NAME[:key=value,...]` or `FILE.py:NAME[:key=value,...]`; return name and rule.

    A local file that the user names is trusted, like a script. Remote files are refused.

    Raises:
        ValueError: If the rule, its file or a parameter does not exist, or a value is not valid.
        ImportError: If the file imports smdebug, and the real one was already imported.
    """
    in_file = _IN_FILE.fullmatch(text)
    source = in_file["source"] if in_file else ""
    name, _, rest = (in_file["rule"] if in_file else text).partition(":")
    if not source and name.endswith(".py"):
        raise ValueError(_unnamed_rule(name))
    parameters: dict[str, str] = {}
    for part in _BETWEEN_PARAMETERS.split(rest) if rest else ():
        key, found, value = part.partition("=")
        if not found:
            raise ValueError(f"{text!r}: write parameters as NAME:key=value,key=value")
        key = key.strip()
        if key in parameters:
            raise ValueError(f"{text!r}: {key} is given twice, as {parameters[key]} and {value}")
        parameters[key] = value
    try:
        if not source:
            return text, create_rule(class_name(name.strip()), parameters)
        return text, _custom_rule(source, name.strip(), parameters)
    except UnknownRuleError:
        file = f"{snake_case(name.strip())}.py"
        if not Path(file).is_file():
            raise
        raise UnknownRuleError(f"no rule {name!r}, but {_unnamed_rule(file)}") from None
    except ParameterError as error:
        if _COLON_BETWEEN.search(rest):
            raise ParameterError(f"{error}; separate parameters by commas, not colons") from None
        raise


def class_in_file(text: str) -> type[Any] | None:
    """Return the class that `FILE.py:NAME` names; None for the name of an installed rule.

    Raises:
        ValueError: If the rule or its file does not exist, or its code fails.
        ImportError: If the file imports smdebug, and the real one was already imported.
    """
    from rule_runtime.custom_rules.loader import load_rule_class  # noqa: PLC0415 - few ask for it

    in_file = _IN_FILE.fullmatch(text)
    if in_file is None and text.endswith(".py"):
        raise ValueError(_unnamed_rule(text))
    if in_file is None:
        return None
    source = in_file["source"]
    return load_rule_class(source, in_file["rule"], allowed=[_folder(source)], hide_smdebug=True)


def class_name(name: str) -> str:
    """Return the class name of a rule; converts `vanishing_gradient` to VanishingGradient."""
    if name.lower() != name:
        return name
    return next((rule for rule in available_rules() if snake_case(rule) == name), name)


def _unnamed_rule(source: str) -> str:
    """Return how to name a rule of a file, with a list of its rules."""
    from rule_runtime.custom_rules.loader import MAX_SOURCE_BYTES  # noqa: PLC0415 - few ask for it
    from rule_runtime.custom_rules.rule_names import rule_names  # noqa: PLC0415 - as above

    form = f"{source}: name the rule in the file, {source}:CLASS"
    try:
        with Path(source).expanduser().open("rb") as file:
            found = rule_names(file.read(MAX_SOURCE_BYTES), available_rules())
    except OSError as error:
        return f"{form}; but the file cannot be read: {error.strerror}"
    return f"{form}; it has {', '.join(found)}" if found else form


def _custom_rule(source: str, name: str, parameters: Mapping[str, str]) -> Rule:
    from rule_runtime.custom_rules.loader import load_custom_rule  # noqa: PLC0415 - few ask for it

    allowed = [_folder(source)]
    return load_custom_rule(source, name, parameters, allowed=allowed, hide_smdebug=True)


def _folder(source: str) -> Path:
    """Return the folder of a rule's file, that of its target if it is a link."""
    if "://" in source:
        raise ValueError(f"{source}: only local files are allowed; copy it here first")
    return Path(source).expanduser().resolve().parent


def evaluate_run(
    path: str,
    rules: Sequence[tuple[str, Rule]],
    *,
    on_start: Callable[[int], None] | None = None,
    on_evaluated: Callable[[str], None] = lambda _: None,
) -> Mapping[str, EvaluationState]:
    """Return the final state of each rule over a stored run.

    `on_start` is called with the number of steps, `on_evaluated` for each step, in words.

    Raises:
        ValueError: If the URI cannot be opened.
        StorageError: If the storage cannot be read.
    """
    from rule_runtime.engine.stored_run import evaluate_stored_run  # noqa: PLC0415 - loads numpy

    return evaluate_stored_run(
        open_store(path), rules, on_start=on_start, on_evaluated=on_evaluated
    )


def exit_status_of_runs(
    runs: Sequence[Mapping[str, EvaluationState]], *, required: Collection[str] = ()
) -> ExitStatus:
    """Return the exit status: an issue in any run has priority over rules that were not evaluated.

    It is no success if a rule failed, a run has no evaluated rule, or a required rule evaluated no
    run.
    """
    if not runs:
        return ExitStatus.NOT_JUDGED
    shown = [{name: displayed_status(state) for name, state in states.items()} for states in runs]
    found = exit_status_of_statuses([status for statuses in shown for status in statuses.values()])
    is_lacking = any(
        all(statuses[name] == NOT_EVALUATED for statuses in shown) for name in required
    )
    return ExitStatus.NOT_JUDGED if is_lacking and found is ExitStatus.NO_ISSUE else found


def exit_status_of_statuses(statuses: Collection[str]) -> ExitStatus:
    """Return the exit status for the statuses of all rules as they are displayed."""
    if RuleStatus.ISSUES_FOUND.value in statuses:
        return ExitStatus.ISSUE_FOUND
    has_failed = RuleStatus.ERROR.value in statuses
    is_judged = not statuses or not {NOT_EVALUATED, NOT_EVALUATED_YET}.issuperset(statuses)
    return ExitStatus.NO_ISSUE if is_judged and not has_failed else ExitStatus.NOT_JUDGED


def displayed_status(state: EvaluationState) -> str:
    """Return the status to display; an Error can mean that the rule was not evaluated (yet)."""
    return status_text(
        state.status.value,
        is_not_evaluated=state.has_evaluated_nothing,
        needs_more=state.needs_more,
    )
