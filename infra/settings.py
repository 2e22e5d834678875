"""Readers of single settings: from what a user wrote, text or JSON, to a checked value.

Every reader takes the raw value and returns the checked one, or raises `SettingError` (several
at once: `SeveralMistakesError`) with what is allowed. Values that come from `-c key=value` are
text, values of cdk.json are JSON.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Reader",
    "RuleConfiguration",
    "SettingError",
    "SeveralMistakesError",
    "nearest_name",
    "read_choice",
    "read_flag",
    "read_names",
    "read_number",
    "read_rules",
    "read_text",
]

Reader = Callable[[Any], Any]

RULE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
RULE_NAME_ALLOWED = "a name of at most 64 letters, digits, '-' and '_' that begins with a letter"
RULES_ALLOWED = (
    "an object of rule configuration names and their parameters, a list of names or of "
    "DebugRuleConfiguration objects, or one of them as JSON text"
)


class SettingError(ValueError):
    """One setting has a value that is not allowed.

    Attributes:
        allowed: What the setting may be.
        nearest: The closest valid name, if the value looks like a misspelt one.
        part: The part of the setting that is wrong, e.g. `.VanishingGradient.threshold`.
        value: The wrong value, where only a part of the setting is wrong.
    """

    def __init__(
        self, allowed: str, *, nearest: str | None = None, part: str = "", value: Any = None
    ) -> None:
        super().__init__(f"allowed: {allowed}")
        self.allowed = allowed
        self.nearest = nearest
        self.part = part
        self.value = value


class SeveralMistakesError(ValueError):
    """Several parts of one setting have values that are not allowed."""

    def __init__(self, errors: list[SettingError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclass(frozen=True)
class RuleConfiguration:
    """One configured rule.

    Attributes:
        name: Rule configuration name, unique in the deployment.
        rule_to_invoke: Class name of the rule.
        parameters: Parameters as text, without `rule_to_invoke`.
    """

    name: str
    rule_to_invoke: str
    parameters: Mapping[str, str]

    def environment_value(self) -> str:
        """Return the JSON object that the evaluator reads its rule and parameters from."""
        return json.dumps({"rule_to_invoke": self.rule_to_invoke, **self.parameters})


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the valid name that is closest to a misspelt one, or None."""
    by_folded = {valid.casefold(): valid for valid in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def read_choice(*choices: str) -> Reader:
    """Return a reader that accepts one of the choices."""

    def read(value: Any) -> str:
        if value in choices:
            return str(value)
        raise SettingError(", ".join(choices), nearest=nearest_name(str(value), choices))

    return read


def read_number(low: int, high: int, *, only: tuple[int, ...] | None = None) -> Reader:
    """Return a reader that accepts whole numbers of a range, or only the listed ones."""

    def read(value: Any) -> int:
        allowed = ", ".join(map(str, only)) if only else f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,9}", str(value)):
            raise SettingError(allowed)
        number = int(value)
        if only and number not in only:
            raise SettingError(allowed, nearest=str(min(only, key=lambda n: abs(n - number))))
        if not low <= number <= high:
            raise SettingError(allowed)
        return number

    return read


def read_text(pattern: str, allowed: str) -> Reader:
    """Return a reader that accepts text which matches the pattern from end to end."""

    def read(value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise SettingError(allowed)

    return read


def read_flag(value: Any) -> bool:
    """Read true or false, as JSON or as text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise SettingError("true or false")


def read_names(value: Any) -> tuple[str, ...]:
    """Read a list of names: a JSON list, its text, or names with commas between."""
    if isinstance(value, str):
        value = _from_text(value)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SettingError("a list of names, or names with commas between")
    return tuple(value)


def read_rules(rule_names: Iterable[str]) -> Reader:
    """Return a reader of the configured rules.

    Args:
        rule_names: The rules that exist; another `rule_to_invoke` is a mistake.
    """
    known = tuple(rule_names)

    def read(value: Any) -> tuple[RuleConfiguration, ...]:
        if isinstance(value, str):
            value = _from_text(value)
        errors: list[SettingError] = []
        rules = [_rule(name, given, known, errors) for name, given in _pairs(value)]
        names = [rule.name for rule in rules]
        errors += [
            SettingError("each rule configuration name once", part=f".{name}", value=name)
            for name in sorted({name for name in names if names.count(name) > 1})
        ]
        if not rules:
            errors.append(SettingError("at least one rule"))
        if errors:
            raise SeveralMistakesError(errors)
        return tuple(rules)

    return read


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return [name.strip() for name in text.split(",") if name.strip()]


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if not isinstance(value, list):
        raise SettingError(RULES_ALLOWED)
    pairs: list[tuple[Any, Any]] = []
    for entry in value:
        if isinstance(entry, str):
            pairs.append((entry, {}))
        elif isinstance(entry, Mapping) and "RuleConfigurationName" in entry:
            pairs.append((entry["RuleConfigurationName"], entry.get("RuleParameters")))
        else:
            raise SettingError(RULES_ALLOWED, value=entry)
    return pairs


def _rule(
    name: Any, parameters: Any, known: tuple[str, ...], errors: list[SettingError]
) -> RuleConfiguration:
    name = str(name)
    if not RULE_NAME.fullmatch(name):
        errors.append(SettingError(RULE_NAME_ALLOWED, part=f".{name}", value=name))
    if not isinstance(parameters, Mapping | None):
        errors.append(SettingError("an object of parameters", part=f".{name}", value=parameters))
        parameters = None
    texts: dict[str, str] = {}
    for key, value in (parameters or {}).items():
        if isinstance(value, str | bool | int | float):
            texts[key] = value if isinstance(value, str) else json.dumps(value)
        else:
            part = f".{name}.{key}"
            errors.append(SettingError("text, a number, true or false", part=part, value=value))
    rule_to_invoke = texts.pop("rule_to_invoke", name)
    if rule_to_invoke not in known:
        nearest = nearest_name(rule_to_invoke, known)
        part = f".{name}.rule_to_invoke"
        allowed = f"the rules {', '.join(known)}"
        errors.append(SettingError(allowed, nearest=nearest, part=part, value=rule_to_invoke))
    return RuleConfiguration(name, rule_to_invoke, texts)
