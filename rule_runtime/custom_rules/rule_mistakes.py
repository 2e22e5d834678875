"""Creates a rule from a user's class; errors in the class name the line and the remedy."""

from __future__ import annotations

import ast
import inspect
import linecache
import logging
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from hook_layer.format.known_collections import meant_collection
from rule_runtime.configuration.collection_config import as_collections
from rule_runtime.engine.failure import CHECK, failure_reason, located
from rule_runtime.engine.parameters import ParameterError, coerce, is_supported
from rule_runtime.engine.registry import instantiate
from rule_runtime.engine.rule import Rule

__all__ = ["CustomRuleError", "in_class", "made_rule"]

_logger = logging.getLogger(__name__)

_KINDS: Final = "float, int, bool, str, tuple[str, ...] or Literal[...]"
_ARGUMENTS: Final = 3
"""`self`, the step and the memory."""


class CustomRuleError(ValueError):
    """A custom rule that must not be loaded, cannot be found, or is invalid."""


def made_rule(cls: type[Rule], given: Mapping[str, object]) -> Rule:
    """Return a rule from a user's class.

    Raises:
        CustomRuleError: If the class has an error; the message has its line.
        ParameterError: If a given parameter does not fit the class.
    """
    _check_signature(cls)
    _check_constructor(cls)
    _check_parameters(cls)
    _check_annotated(cls, given)
    declares = cls.requires is Rule.requires
    try:
        rule = instantiate(cls, given)
        wanted: object = cls.collections if declares else rule.requires()
    except ParameterError:
        raise
    except (Exception, SystemExit) as error:  # custom code
        raise CustomRuleError(failure_reason(error, cls)) from error
    _check_collections(cls, wanted, "collections" if declares else "requires")
    return rule


def in_class(cls: type[Any], text: str, member: str = "") -> CustomRuleError:
    """Return the error for a class, with the line of the class or of a member.

    Args:
        cls: The class.
        text: The problem, and what was expected.
        member: Name of an attribute or method; empty for the class itself.
    """
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    line = _line_of(linecache.getlines(file), cls.__name__, member)
    return CustomRuleError(located(text, file, line) if line else text)


def _check_signature(cls: type[Rule]) -> None:
    method = inspect.getattr_static(cls, "check")
    try:
        inspect.signature(cls.check).bind(*[None] * _ARGUMENTS)
    except TypeError:
        if not isinstance(method, (staticmethod, classmethod)):
            raise in_class(
                cls, f"{cls.__name__}.check must begin with `{CHECK}`", "check"
            ) from None


def _check_constructor(cls: type[Rule]) -> None:
    try:
        if not vars(cls)["__dataclass_params__"].init:  # else it is that of the parameters
            inspect.signature(cls).bind()
    except TypeError:
        text = f"{cls.__name__}.__init__ takes arguments; declare parameters in the class instead"
        raise in_class(cls, f"{text}: `bound: float = 5.0`", "__init__") from None


def _check_parameters(cls: type[Rule]) -> None:
    try:
        parameters = cls.parameters()
    except Exception as error:  # noqa: BLE001 - annotations are anybody's code
        text = f"an annotation of {cls.__name__} is wrong: {error}; a parameter is {_KINDS}"
        raise in_class(cls, text, _annotated_with(cls, getattr(error, "name", None))) from None
    for parameter in parameters:
        name = parameter.name
        if not is_supported(parameter.type):
            text = f"{cls.__name__}: the type of the parameter {name} must be {_KINDS}"
            raise in_class(cls, text, name)
        if parameter.is_required:
            continue
        try:
            coerce(parameter, parameter.default, owner=cls.__name__)
        except ParameterError as error:
            raise in_class(cls, str(error), name) from None


def _check_annotated(cls: type[Rule], given: Mapping[str, object]) -> None:
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # every rule is one
    for name in given:
        if name not in known and name in vars(cls):
            kind = type(vars(cls)[name]).__name__
            text = f"{cls.__name__}.{name} is no parameter without a type; write `{name}: "
            raise in_class(cls, f"{text}{kind} = ...`", name)


def _check_collections(cls: type[Rule], wanted: object, member: str) -> None:
    try:
        collections = as_collections(wanted)
    except TypeError as error:
        raise in_class(cls, f"{cls.__name__}: {error}", member) from None
    for config in collections:
        meant = meant_collection(config.name)
        if meant is not None and "include_regex" not in config.parameters:
            text = f"{cls.__name__}: hooks fill no collection {config.name!r}; did you mean"
            _logger.warning("%s", in_class(cls, f"{text} {meant!r}?", member))


def _annotated_with(cls: type[Rule], name: str | None) -> str:
    """Return the first parameter whose annotation has a name; empty if there is none."""
    annotations = vars(cls).get("__annotations__", {}).items()
    return next((key for key, hint in annotations if name and name in str(hint)), "")


def _line_of(lines: list[str], owner: str, member: str) -> int:
    """Return the line of a class or of its member; 0 if the class is not in the file."""
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return 0
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    if not found:
        return 0
    for node in found[-1].body:
        if member in _names_of(node):
            return node.lineno
    return found[-1].lineno


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]
