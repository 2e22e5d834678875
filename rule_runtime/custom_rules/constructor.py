"""Converts parameters, which may be strings, to constructor arguments."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from typing import Any, Final

from rule_runtime.engine.constraints import Constraint
from rule_runtime.engine.parameters import Parameter, ParameterError, coerce, nearest

__all__ = ["constructor_arguments", "constructor_parameters"]

_GIVEN_BY_US: Final = frozenset({"other_trials", "action_str"})
_NUM_BEFORE: Final = 2
"""`self` and the trial."""
_LISTS: Final = (list, set, frozenset)


def constructor_arguments(cls: type[Any], given: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of a class's constructor, converted to the annotated types.

    The first argument, the trial, and `other_trials` are ignored.

    Raises:
        ParameterError: If a parameter is unknown or missing, or a value is invalid; names the
            parameter.
    """
    accepted = _beside_the_trial(cls)
    named = {p.name: p for p in accepted if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted)
    for name in given:
        if name == "other_trials":
            raise ParameterError(
                f"{cls.__name__}: other_trials is not given as a parameter; name the trials one by "
                "one as other_trial_0, other_trial_1, ..."
            )
        if name not in named and not takes_any:
            hint = nearest(name, named.keys() - _GIVEN_BY_US)
            raise ParameterError(f"{cls.__name__} takes no parameter {name!r}{hint}")
    for parameter in named.values():
        is_needed = parameter.default is parameter.empty and parameter.name not in _GIVEN_BY_US
        if is_needed and parameter.name not in given:
            raise ParameterError(f"{cls.__name__} needs the parameter {parameter.name!r}")
    hints = _hints(cls.__init__)
    return {name: _coerced(cls.__name__, name, hints.get(name), v) for name, v in given.items()}


def constructor_parameters(cls: type[Any]) -> tuple[Parameter, ...]:
    """Return the named parameters of a class's constructor besides the trials and actions.

    Raises:
        ParameterError: If the constructor does not take the trial first.
    """
    hints = _hints(cls.__init__)
    return tuple(
        Parameter(p.name, hints.get(p.name), MISSING if p.default is p.empty else p.default, (), "")
        for p in _beside_the_trial(cls)
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in _GIVEN_BY_US
    )


def _beside_the_trial(cls: type[Any]) -> list[inspect.Parameter]:
    """Return the parameters of a constructor after `self` and the trial."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())
    for num_taken, parameter in enumerate(parameters[:_NUM_BEFORE], start=1):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return parameters[num_taken - 1 :]
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            break
        if num_taken == _NUM_BEFORE:
            return parameters[_NUM_BEFORE:]
    raise ParameterError(f"{cls.__name__}.__init__ must take base_trial first: (self, base_trial)")


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        pass
    # Some names exist only for type checkers, such as the trial's: use the hints that resolve.
    hints = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        stub = type("_", (), {"__annotations__": {name: hint}, "__module__": function.__module__})
        try:
            hints.update(typing.get_type_hints(stub, include_extras=True))
        except (NameError, TypeError, AttributeError):
            continue
    return hints


def _coerced(owner: str, name: str, hint: Any, value: object) -> Any:
    metadata: list[Any] = []
    if typing.get_origin(hint) is typing.Annotated:
        hint, *metadata = typing.get_args(hint)
    if hint is None or hint is Any:
        return value
    constraints = tuple(item for item in metadata if isinstance(item, Constraint))
    made: Callable[[Any], Any] | None = None
    origin = typing.get_origin(hint) or hint
    if origin in _LISTS:
        made = origin
        items = typing.get_args(hint) or (str,)
        hint = tuple.__class_getitem__((items[0], ...))
    elif hint is tuple:
        hint = tuple[str, ...]
    result = coerce(Parameter(name, hint, MISSING, constraints, ""), value, owner=owner)
    return made(result) if made is not None else result
