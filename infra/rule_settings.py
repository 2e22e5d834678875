"""Reads the setting `rules` in each supported form, and lets the rules validate it.

The code of the rules checks names and parameters, so a misspelled parameter ends synthesis instead
of becoming an Error of every job.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from infra.settings import SettingError, SeveralMistakesError, from_text

__all__ = [
    "RuleCheckError",
    "RuleConfiguration",
    "RulePack",
    "grouped_rules",
    "pack_of",
    "query_rules",
    "read_rules",
    "rule_configuration_names",
]

ROOT = Path(__file__).resolve().parent.parent
CHECKER = "rule_runtime.engine.check_parameters"
# Runs in another process, because infra must not import the rules.
PRINT_PACKS = """
import json
from rule_runtime.configuration.packs import PACKS
def plain(given):
    return {k: ",".join(v) if isinstance(v, tuple) else v for k, v in given.items()}
packs = {
    pack.name: {rule: plain(given) for rule, given in pack.parameters.items()}
    for pack in PACKS.values()
}
print(json.dumps(packs))
"""
TIMEOUT_S = 60

RULE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
PACK_NAME = re.compile("[a-z]{1,40}")  # names of rules begin with a capital
RULE_NAME_ALLOWED = "a name of at most 64 letters, digits, '-' and '_' that begins with a letter"
RULES_ALLOWED = (
    "the name of a pack of rules, an object of rule configuration names and their parameters, "
    "a list of such names, objects or DebugRuleConfiguration objects, or one of them as JSON text"
)


class RuleCheckError(RuntimeError):
    """The rules cannot validate their parameters; the message says why."""


@dataclass(frozen=True)
class RuleConfiguration:
    """One configured rule; its parameters are text, without `rule_to_invoke`."""

    name: str
    rule_to_invoke: str
    parameters: Mapping[str, str]

    def environment_value(self) -> str:
        """Return the JSON object with the evaluator's rule and parameters."""
        return json.dumps({"rule_to_invoke": self.rule_to_invoke, **self.parameters})


def grouped_rules(rules: Sequence[RuleConfiguration]) -> str:
    """Return the JSON object of rules and their parameters for the function that has them all."""
    return json.dumps(
        {
            rule.name: {
                **(
                    {}
                    if rule.rule_to_invoke == rule.name
                    else {"rule_to_invoke": rule.rule_to_invoke}
                ),
                **rule.parameters,
            }
            for rule in rules
        },
        separators=(",", ":"),
    )


RulePack: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Rules that are used together, each with its parameters that differ from the default."""


def pack_of(value: Any) -> RulePack | None:
    """Return the pack in the setting `rules`, alone or with rules; None without any.

    Raises:
        RuleCheckError: The packs of the rules cannot be read.
    """
    entries = from_text(value) if isinstance(value, str) else value
    packs = map(_pack_named, entries) if isinstance(entries, list) else ()
    return next((pack for pack in packs if pack is not None), None)


def _pack_named(value: Any) -> RulePack | None:
    if not isinstance(value, str) or not PACK_NAME.fullmatch(value):
        return None
    pack: RulePack | None = json.loads(query_rules(("-c", PRINT_PACKS), "")).get(value)
    return pack


def read_rules(value: Any) -> tuple[RuleConfiguration, ...]:
    """Read the configured rules.

    Raises:
        SettingError: The value has an unsupported form.
        SeveralMistakesError: Parts of it are invalid.
        RuleCheckError: The parameters of the rules cannot be checked.
    """
    errors: list[SettingError] = []
    rules = [_rule(name, given, errors) for name, given in _pairs(value)]
    names = [rule.name for rule in rules]
    errors += [
        SettingError("each rule configuration name once", part=f".{name}", value=name)
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    errors += _check(rules) if rules else [SettingError("at least one rule")]
    if errors:
        raise SeveralMistakesError(errors)
    return tuple(rules)


def rule_configuration_names(value: Any) -> tuple[str, ...]:
    """Return the names of the configured rules, even if other parts are invalid."""
    try:
        return tuple(str(name) for name, _ in _pairs(value))
    except SettingError:
        return ()


def _check(rules: Sequence[RuleConfiguration]) -> list[SettingError]:
    """Return the rules' own objections to their names and parameters."""
    question = [
        {"rule_to_invoke": rule.rule_to_invoke, "parameters": dict(rule.parameters)}
        for rule in rules
    ]
    mistakes = json.loads(query_rules(("-m", CHECKER), json.dumps(question)))
    return [_error(rules[mistake["rule"]], mistake) for mistake in mistakes]


@lru_cache(maxsize=32)
def query_rules(program: tuple[str, ...], question: str) -> str:
    """Send a question to the standard input of a program that knows the rules; return its answer.

    Raises:
        RuleCheckError: It failed; the message contains its error.
    """
    # This process imports only contracts, and the rules need numpy.
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, *program],
            input=question,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise RuleCheckError(f"the rules did not answer in {TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise RuleCheckError(
            "the parameters of the rules cannot be checked, because the checking process "
            f"failed:\n{done.stderr.strip()}"
        )
    return done.stdout


def _error(rule: RuleConfiguration, mistake: Mapping[str, Any]) -> SettingError:
    key, part, value = mistake["parameter"], f".{rule.name}", dict[str, str](rule.parameters)
    if key is None:
        return SettingError(mistake["allowed"], part=part, value=value)
    return SettingError(
        mistake["allowed"],
        nearest=mistake["nearest"],
        part=f"{part}.{key}",
        value={"rule_to_invoke": rule.rule_to_invoke, **value}.get(key, "(missing)"),
    )


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Return names and parameters as written, followed by those of a pack."""
    if isinstance(value, str):
        value = from_text(value)
    if isinstance(value, Mapping):
        return list(value.items())
    if not isinstance(value, list):
        raise SettingError(RULES_ALLOWED)
    entries = [(entry, _pack_named(entry)) for entry in value]
    packs = [pack for _, pack in entries if pack is not None]
    if len(packs) > 1:
        raise SettingError("one pack, with rules next to it")
    of_pack = dict(packs[0]) if packs else {}
    own = [pair for entry, pack in entries if pack is None for pair in _pairs_of(entry)]
    pairs = [(name, _with_those_of_pack(given, of_pack.get(name))) for name, given in own]
    named = {name for name, _ in own}
    return pairs + [(name, given) for name, given in of_pack.items() if name not in named]


def _pairs_of(entry: Any) -> list[tuple[Any, Any]]:
    if isinstance(entry, str):
        return [(entry, {})]
    if isinstance(entry, Mapping) and "RuleConfigurationName" in entry:
        return [(entry["RuleConfigurationName"], entry.get("RuleParameters"))]
    if isinstance(entry, Mapping) and all(isinstance(v, Mapping | None) for v in entry.values()):
        return list(entry.items())
    raise SettingError(RULES_ALLOWED, value=entry)


def _with_those_of_pack(given: Any, of_pack: Mapping[str, Any] | None) -> Any:
    """Return parameters merged over those of a pack."""
    is_other_rule = isinstance(given, Mapping) and "rule_to_invoke" in given
    if of_pack is None or is_other_rule or not isinstance(given, Mapping | None):
        return given
    return {**of_pack, **(given or {})}


def _rule(name: Any, parameters: Any, errors: list[SettingError]) -> RuleConfiguration:
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
    return RuleConfiguration(name, texts.pop("rule_to_invoke", name), texts)
