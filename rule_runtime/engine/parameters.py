"""Parameters of rules: declared by annotations, converted from strings and checked.

A training API passes every parameter as a string, so `"1e-7"`, `"True"` and `"conv1,conv2"` are
converted to the types of their annotations.
"""

from __future__ import annotations

import difflib
import logging
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final, Literal

from rule_runtime.engine.constraints import Constraint, Regex, Unit

__all__ = [
    "Parameter",
    "ParameterError",
    "coerce",
    "current_names",
    "is_supported",
    "nearest",
    "nearest_name",
    "parameters_of",
]

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_BYTES: Final = (bytes, bytearray, memoryview)
_NONE: Final = frozenset({"", "none", "null"})
_SIMILAR: Final = 0.5
"""Similarity (difflib's ratio) from which another name is suggested."""


_logger = logging.getLogger(__name__)


class ParameterError(ValueError):
    """A parameter name or value that a rule does not accept.

    Attributes:
        parameter: Name of the parameter; None for a conflict of several.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True)
class Parameter:
    """One parameter of a rule.

    Attributes:
        type: Its type, without the annotations.
        default: Its default value; `dataclasses.MISSING` if it is required.
        constraints: Conditions on the value.
        unit: Its unit, or "".
    """

    name: str
    type: Any
    default: Any
    constraints: tuple[Constraint, ...]
    unit: str

    @property
    def is_required(self) -> bool:
        """True if the parameter has no default."""
        return self.default is MISSING

    @property
    def allowed(self) -> str:
        """The accepted values in words."""
        parts = [_kind(self.type).words, *map(str, self.constraints)]
        return ", ".join([*parts, f"in {self.unit}"] if self.unit else parts)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a parameter with a fixed set of values; empty for others."""
        return _kind(self.type).choices


@lru_cache(maxsize=256)
def parameters_of(cls: type) -> tuple[Parameter, ...]:
    """Return the parameters of a rule's class in the order of their declaration."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_parameter(field, hints[field.name]) for field in fields(cls) if field.init)


def coerce(parameter: Parameter, value: object, *, owner: str) -> Any:
    """Return a string, or a value of the type, converted to its parameter's type and checked.

    `owner` is the name of the rule, for the message.

    Raises:
        ParameterError: If the value has the wrong type, or is out of range.
    """
    try:
        kind = _kind(parameter.type, is_regex=Regex() in parameter.constraints)
    except TypeError as error:
        message = f"{owner}: parameter {parameter.name} is {value!r}, but {error}"
        raise ParameterError(message, parameter=parameter.name) from None
    try:
        result = kind.convert(value)
    except (TypeError, ValueError) as error:
        raise _refused(parameter, owner, repr(value), kind.words, str(error)) from None
    for constraint in () if result is None else parameter.constraints:
        problem = constraint.problem(result)
        if problem is not None:
            shown = f"{result!r} {parameter.unit}".rstrip()
            raise _refused(parameter, owner, shown, str(constraint), problem)
    return result


def _refused(
    parameter: Parameter, owner: str, shown: str, expected: str, problem: str
) -> ParameterError:
    why = f": {problem}" if problem else ""
    message = f"{owner}: parameter {parameter.name} is {shown}, but must be {expected}{why}"
    return ParameterError(message, parameter=parameter.name)


def is_supported(kind: Any) -> bool:
    """Return whether parameters can have a given type."""
    try:
        _kind(kind)
    except TypeError:
        return False
    return True


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the valid name most similar to the user's; None if none is similar."""
    by_folded = {candidate.casefold(): candidate for candidate in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=_SIMILAR)
    return by_folded[found[0]] if found else None


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the most similar valid name, or a list of names."""
    valid = sorted(names)
    found = nearest_name(name, valid)
    if found is not None:
        return f"; did you mean {found!r}?"
    return f"; valid are {', '.join(valid)}" if valid else "; there are none"


def _parameter(field: Field[Any], hint: Any) -> Parameter:
    metadata: list[Any] = []
    for part in (hint, *typing.get_args(hint)):  # or `Annotated[int, AtLeast(1)] | None`
        if typing.get_origin(part) is typing.Annotated:
            metadata += typing.get_args(part)[1:]
    is_annotated = typing.get_origin(hint) is typing.Annotated
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    return Parameter(
        name=field.name,
        type=typing.get_args(hint)[0] if is_annotated else hint,
        default=default,
        constraints=tuple(item for item in metadata if isinstance(item, Constraint)),
        unit=next((item.name for item in metadata if isinstance(item, Unit)), ""),
    )


@dataclass(frozen=True)
class _Kind:
    """The values of a type: their description, singular and plural, and the conversion."""

    words: str
    several: str
    convert: Callable[[Any], Any]
    choices: tuple[str, ...] = ()


def _kind(hint: Any, *, is_regex: bool = False) -> _Kind:
    """Return the kind of a type; raise TypeError if parameters cannot have it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is typing.Annotated:
        return _kind(args[0], is_regex=is_regex)
    given = [each for each in args if each is not type(None)]
    if origin in (typing.Union, types.UnionType) and len(given) == 1:
        inner = _kind(given[0], is_regex=is_regex)
        return replace(
            inner,
            words=f"{inner.words}, or none",
            convert=lambda value: None if _is_none(value) else inner.convert(value),
        )
    if origin is Literal:
        choices = tuple(map(str, args))
        words = f"one of {', '.join(choices)}"
        return _Kind(words, words, lambda value: _choice(args, value), choices)
    if origin is tuple:
        item = _kind(args[0])
        words = f"{item.several} with commas between"
        return _Kind(
            words, words, lambda value: tuple(map(item.convert, _items(value, is_regex=is_regex)))
        )
    raise TypeError(f"parameters of type {hint!r} are not supported")


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().casefold() in _NONE)


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    text = value.strip().casefold() if isinstance(value, str) else value
    for choice in choices:
        if (choice.casefold() if isinstance(choice, str) else choice) == text:
            return choice
    raise ValueError


def _items(value: Any, *, is_regex: bool) -> list[Any]:
    if _is_none(value):
        return []
    if isinstance(value, _BYTES) or not isinstance(value, (str, Iterable)):
        raise TypeError
    if not isinstance(value, str):
        return list(value)
    parts = _split_outside_brackets(value) if is_regex else value.split(",")
    return [part.strip() for part in parts if part.strip()]


def _split_outside_brackets(text: str) -> list[str]:
    """Split at commas outside of `{1,3}`, `[,;]` and `(a,b)`; a backslash escapes a character."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    return [*parts, text[start:]]


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().casefold()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def _integer(value: Any) -> int:
    number = _real(value)
    if not number.is_integer():
        raise ValueError
    return int(value) if isinstance(value, numbers.Integral) else int(number)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, str)):
        raise TypeError
    try:
        number = float(value)
    except (OverflowError, ValueError):
        raise ValueError from None
    if number != number:  # noqa: PLR0124 - a NaN passes every range check
        raise ValueError("not NaN")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_PLAIN: Final = {
    bool: _Kind("true or false", "true or false values", _boolean),
    int: _Kind("a whole number", "whole numbers", _integer),
    float: _Kind("a number", "numbers", _real),
    str: _Kind("text", "texts", _text),
}


def current_names(
    owner: str, former: Iterable[tuple[str, str]], given: Mapping[str, object]
) -> dict[str, Any]:
    """Return parameters by their current names; logs a warning for each former name.

    `former` has former and current names. `owner` is the name of the rule, for the messages.

    Raises:
        ParameterError: If a parameter is given by both names.
    """
    found = dict(given)
    for old, new in former:
        if old not in found:
            continue
        if new in found:
            message = f"{owner}: {old!r} is the former name of {new!r}; give only {new!r}"
            raise ParameterError(message, parameter=old)
        found[new] = found.pop(old)
        _logger.warning("%s: the parameter %s is deprecated; use %s", owner, old, new)
    return found
