"""Checks configured rules for a deployment tool: `python -m rule_runtime.engine.check_parameters`.

The tool runs this as a process, so it need not import the rules. The standard input holds a JSON
list of `{"rule_to_invoke": ..., "parameters": {...}}`; the list that `check_parameters` returns is
printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import rule_runtime.rules
from rule_runtime.engine.parameters import ParameterError, nearest_name
from rule_runtime.engine.registry import available_rules, create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.step_bounds import BOUNDS

__all__ = ["check_parameters", "main"]


def check_parameters(rules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every error in the configuration of built-in rules; deployments carry no others.

    Args:
        rules: For each rule `rule_to_invoke` and its `parameters`, as text.

    Returns:
        For each error the position of its `rule`, the name of the `parameter` (None for a
        conflict of several), what is `allowed`, and the `nearest` allowed word, if any.
    """
    package, named = f"{rule_runtime.rules.__name__}.", available_rules().items()
    built_in = {name: rule for name, rule in named if rule.__module__.startswith(package)}
    return [
        {"rule": position, **mistake}
        for position, rule in enumerate(rules)
        for mistake in _mistakes(rule["rule_to_invoke"], rule["parameters"], built_in)
    ]


def main() -> None:
    """Check the rules from the standard input."""
    json.dump(check_parameters(json.load(sys.stdin)), sys.stdout)


def _mistakes(
    name: str, given: Mapping[str, str], built_in: Mapping[str, type[Rule]]
) -> list[dict[str, Any]]:
    if name not in built_in:
        nearest = nearest_name(name, built_in)
        return [_mistake("rule_to_invoke", f"the rules {', '.join(built_in)}", nearest)]
    values = dict(given)
    wrong: list[str] = []
    while True:  # the wrong parameter is dropped to find the next one
        try:
            create_rule(name, values)
        except ParameterError as error:
            if error.parameter is None and not wrong:
                return [_mistake(None, f"parameters that fit together ({error})")]
            if error.parameter is not None and error.parameter not in wrong:
                wrong.append(error.parameter)
                if values.pop(error.parameter, None) is not None:
                    continue
        return [_wrong(built_in[name], key, given.get(key, "")) for key in sorted(wrong)]


def _wrong(rule: type[Rule], key: str, value: str) -> dict[str, Any]:
    known = {each.name: each for each in rule.parameters()}
    parameter = known.get(key) or BOUNDS.get(key)
    if parameter is None:
        return _mistake(key, f"the parameters {', '.join(known)}", nearest_name(key, known))
    return _mistake(key, parameter.allowed, nearest_name(value, parameter.choices))


def _mistake(parameter: str | None, allowed: str, nearest: str | None = None) -> dict[str, Any]:
    return {"parameter": parameter, "allowed": allowed, "nearest": nearest}


if __name__ == "__main__":
    main()
