"""Finds rules in the modules of `rule_runtime.rules` and in entry points `stepwatch.rules`.

A built-in rule is in the module with its name in snake_case, or in that of its family, so creating
one imports one module.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.metadata import entry_points
from types import ModuleType
from typing import Final, TypeGuard

import rule_runtime.rules
from rule_runtime.engine.parameters import ParameterError, current_names, nearest
from rule_runtime.engine.rule import Rule, snake_case
from rule_runtime.engine.step_bounds import bounded, split_bounds

__all__ = [
    "ENTRY_POINT_GROUP",
    "SERVICE_PARAMETERS",
    "UnknownRuleError",
    "available_rules",
    "create_rule",
    "installed_objects",
    "instantiate",
]

ENTRY_POINT_GROUP: Final = "stepwatch.rules"
"""Entry points of this group name a rule's class, or a module with rules."""

SERVICE_PARAMETERS: Final = frozenset({"rule_to_invoke", "base_trial", "action_json"})
"""Keys among a rule's parameters that are for the service."""

_REPORTS: Final = {
    "CreateXgboostReport": (
        "a report; create it with stepwatch.create_trial(path).create_xgboost_report(out_dir)"
    )
}
"""Rules of SageMaker Debugger that are reports, and how to create these."""

_logger = logging.getLogger(__name__)


class UnknownRuleError(ValueError):
    """No rule has the name."""


def available_rules() -> dict[str, type[Rule]]:
    """Return every available rule by name.

    A rule of an entry point that cannot be imported, or whose name is taken, is skipped with a
    warning.
    """
    rules: dict[str, type[Rule]] = {}
    for name in _builtin_modules():
        for rule in _rules_in(_import_builtin(name)):
            rules[rule.__name__] = rule
    for rule in _installed_rules():
        if rules.setdefault(rule.__name__, rule) is not rule:
            _logger.warning("ignored %s of %s: the name is taken", rule.__name__, rule.__module__)
    return dict(sorted(rules.items()))


def create_rule(rule_to_invoke: str, parameters: Mapping[str, object] | None = None) -> Rule:
    """Return a rule with the given parameters, which may be strings.

    Args:
        rule_to_invoke: Name of the rule, e.g. `VanishingGradient`.
        parameters: Its parameters by name. The keys `rule_to_invoke`, `base_trial` and
            `action_json` of a training API's request are ignored.

    Raises:
        UnknownRuleError: If no rule has the name.
        ParameterError: If a parameter is unknown or missing, or a value is invalid.
    """
    given = {k: v for k, v in (parameters or {}).items() if k not in SERVICE_PARAMETERS}
    return instantiate(_find(rule_to_invoke), given)


def instantiate(cls: type[Rule], parameters: Mapping[str, object]) -> Rule:
    """Return a rule of a class with the given parameters, which may be strings.

    `start_step` and `end_step` bound the evaluated steps, unless the class defines them itself.

    Raises:
        ParameterError: If a parameter is unknown or missing, or a value is invalid.
    """
    parameters = current_names(cls.__name__, cls.former_names, parameters)
    accepted = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
    values, steps = split_bounds(cls.__name__, parameters, accepted)
    for name in values:
        if name not in accepted:
            message = f"{cls.__name__} takes no parameter {name!r}{nearest(name, accepted)}"
            raise ParameterError(message, parameter=name)
    for parameter in cls.parameters():
        if parameter.is_required and parameter.name not in parameters:
            message = f"{cls.__name__} needs the parameter {parameter.name!r}"
            raise ParameterError(message, parameter=parameter.name)
    return bounded(cls(**values), steps)


def _find(name: str) -> type[Rule]:
    module = snake_case(name)
    module = rule_runtime.rules.FAMILIES.get(module, module)
    if module in _builtin_modules():
        for rule in _rules_in(_import_builtin(module)):
            if rule.__name__ == name:
                return rule
    rules = available_rules()
    if name not in rules:
        if name in _REPORTS:
            raise UnknownRuleError(f"{name} is not a rule but {_REPORTS[name]}")
        raise UnknownRuleError(f"there is no rule {name!r}{nearest(name, rules)}")
    return rules[name]


def _builtin_modules() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(rule_runtime.rules.__path__)]


def _import_builtin(name: str) -> ModuleType:
    return importlib.import_module(f"{rule_runtime.rules.__name__}.{name}")


def installed_objects(group: str) -> Iterator[object]:
    """Yield what the entry points of a group name; logs those that cannot be imported."""
    for entry_point in entry_points(group=group):
        try:
            loaded = entry_point.load()
        except Exception as error:  # importing foreign code may raise anything
            text = "ignored the entry point %s = %s: %s: %s"
            named = (entry_point.name, entry_point.value, type(error).__name__, error)
            _logger.warning(text, *named, exc_info=True)
            continue
        yield loaded


def _installed_rules() -> Iterator[type[Rule]]:
    for loaded in installed_objects(ENTRY_POINT_GROUP):
        yield from _rules_in(loaded) if isinstance(loaded, ModuleType) else _as_rule(loaded)


def _as_rule(loaded: object) -> Iterator[type[Rule]]:
    if _is_rule(loaded):
        yield loaded
    else:
        _logger.warning("ignored the entry point %r: it is not a rule", loaded)


def _rules_in(module: ModuleType) -> Iterator[type[Rule]]:
    for value in vars(module).values():
        if _is_rule(value) and value.__module__ == module.__name__:
            yield value


def _is_rule(value: object) -> TypeGuard[type[Rule]]:
    # Python 3.10 calls an alias such as dict[str, int] a class; its type shows the difference.
    if not (inspect.isclass(value) and issubclass(type(value), type)):
        return False
    return issubclass(value, Rule) and not inspect.isabstract(value)
