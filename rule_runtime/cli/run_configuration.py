"""Converts the rules of `stepwatch run` to the configuration in `job.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rule_runtime.configuration.api_values import as_strings
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.step_bounds import StepBounds

__all__ = ["rule_configurations"]

_NO_BOUNDS: Final = StepBounds()


def rule_configurations(rules: Iterable[tuple[str, Rule]]) -> list[dict[str, Any]]:
    """Return the members of `DebugRuleConfigurations` for rules and their names.

    Only parameters that differ from the defaults are included. A custom rule also has its file.
    """
    return [
        {"RuleConfigurationName": name, "RuleParameters": _parameters(rule)} for name, rule in rules
    ]


def _parameters(rule: Rule) -> dict[str, str]:
    steps = rule.step_bounds
    judging, given = _made_of(rule)
    parameters = {"rule_to_invoke": judging.__name__}
    if (source := _file_of(judging)) is not None:
        parameters["source_s3_uri"] = source
    if steps.first != _NO_BOUNDS.first:
        parameters["start_step"] = str(steps.first)
    if steps.end != _NO_BOUNDS.end:
        parameters["end_step"] = f"{steps.end:.0f}"
    return parameters | {name: _text(name, value) for name, value in given.items()}


def _made_of(rule: Rule) -> tuple[type, Mapping[str, Any]]:
    """Return the class of a rule and its arguments."""
    from rule_runtime.custom_rules.smdebug_adapter import SmdebugRule  # noqa: PLC0415 - for `run`

    if isinstance(rule, SmdebugRule):
        return rule.rule_class, rule.given
    return type(rule), _other_than_defaults(rule)


def _file_of(judging: type) -> str | None:
    """Return the file of a custom rule; None for an installed rule."""
    module = sys.modules.get(judging.__module__)
    file = getattr(module, "__file__", None)
    is_installed = getattr(module, "__spec__", None) is not None
    return None if file is None or is_installed else str(Path(file).expanduser().resolve())


def _other_than_defaults(rule: Rule) -> Mapping[str, Any]:
    values = {each.name: getattr(rule, each.name) for each in rule.parameters()}
    return {
        each.name: values[each.name]
        for each in rule.parameters()
        if each.is_required or values[each.name] != each.default
    }


def _text(name: str, value: object) -> str:
    try:
        return as_strings({name: value}).get(name, "none")
    except (TypeError, ValueError):
        return json.dumps(value, default=str)
