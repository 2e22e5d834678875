"""Checking configured rules before they run: `python -m rule_runtime.engine.check_parameters`.

A deployment tool learns here, from the rules themselves, what is wrong with the parameters that a
user wrote. It is a process of its own, so that the tool need not import the rules. Only built-in
rules are known, for they are what a deployment carries.

The standard input holds a JSON list of `{"rule_to_invoke": ..., "parameters": {...}}`, the standard
output gets the list that `check_parameters` returns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import rule_runtime.rules
from rule_runtime.engine.parameter_types import choices_of, type_in_words
from rule_runtime.engine.parameters import Parameter, ParameterError, coerce, nearest_name
from rule_runtime.engine.registry import (
    SERVICE_PARAMETERS,
    available_rules,
    create_rule,
)
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.step_bounds import split_bounds

__all__ = ["check_parameters", "main"]

_BUILT_IN: Final = f"{rule_runtime.rules.__name__}."


def check_parameters(rules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every mistake in the configuration of some rules.

    Args:
        rules: For each rule `rule_to_invoke` and its `parameters`, as text.

    Returns:
        For each mistake the position of its `rule`, the name of the `parameter` (None when several
        do not fit together), what is `allowed`, and the `nearest` word of those that are, if any.
    """
    known = {
        name: rule
        for name, rule in available_rules().items()
        if rule.__module__.startswith(_BUILT_IN)
    }
    return [
        {"rule": position, **mistake}
        for position, rule in enumerate(rules)
        for mistake in _mistakes(rule["rule_to_invoke"], rule["parameters"], known)
    ]


def main() -> None:
    """Check the rules that the standard input holds."""
    json.dump(check_parameters(json.load(sys.stdin)), sys.stdout)


def _mistakes(
    name: str, given: Mapping[str, str], known: Mapping[str, type[Rule]]
) -> list[dict[str, Any]]:
    if name not in known:
        nearest = nearest_name(name, known)
        return [_mistake("rule_to_invoke", f"the rules {', '.join(known)}", nearest)]
    accepted = {parameter.name: parameter for parameter in known[name].parameters()}
    values = {key: value for key, value in given.items() if key not in SERVICE_PARAMETERS}
    mistakes = [_of_value(key, values[key], accepted) for key in sorted(values)]
    mistakes += [
        _mistake(parameter.name, _allowed(parameter))
        for parameter in accepted.values()
        if parameter.is_required and parameter.name not in values
    ]
    found = [mistake for mistake in mistakes if mistake is not None]
    return found or _together(name, values)


def _of_value(key: str, value: str, accepted: Mapping[str, Parameter]) -> dict[str, Any] | None:
    """Return the mistake in one parameter's name or value, if there is any."""
    try:
        if not split_bounds("", {key: value}, accepted)[0]:
            return None
    except ParameterError:
        return _mistake(key, "the number of a step")
    if key not in accepted:
        nearest = nearest_name(key, accepted)
        return _mistake(key, f"the parameters {', '.join(accepted)}", nearest)
    parameter = accepted[key]
    try:
        coerce(parameter, value, owner="")
    except ParameterError:
        nearest = nearest_name(value, choices_of(parameter.type))
        return _mistake(key, _allowed(parameter), nearest)
    return None


def _together(name: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what is wrong with values that are valid one by one."""
    try:
        create_rule(name, values)
    except ParameterError as error:
        return [_mistake(None, f"parameters that fit together ({error})")]
    return []


def _mistake(parameter: str | None, allowed: str, nearest: str | None = None) -> dict[str, Any]:
    return {"parameter": parameter, "allowed": allowed, "nearest": nearest}


def _allowed(parameter: Parameter) -> str:
    parts = [type_in_words(parameter.type), *map(str, parameter.constraints)]
    if parameter.unit:
        parts.append(f"in {parameter.unit}")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
