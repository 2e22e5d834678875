"""Gives all commands `--json`, and plain names instead of types in their help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup", "with_json"]

_OUTPUT: Final = "output"
_JSON: Final = "json"
_JsonOption = Annotated[bool, typer.Option("--json", help="Short form of --output json.")]


class PlainCommand(TyperCommand):
    """A command whose help has no types: `--timeout SECONDS`, and nothing after a switch."""

    def get_params(self, ctx: Any) -> Any:
        """Return arguments and options, each with a name for its value."""
        return _named(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands; see `PlainCommand`."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options, each with a name for its value."""
        return _named(super().get_params(ctx))


def _named(parameters: Any) -> Any:
    for each in parameters:
        if each.metavar is None:
            is_switch = getattr(each, "is_flag", False)
            each.metavar = "" if is_switch else each.name.upper().replace("_", "-")
        if each.param_type_name == "argument":  # its name is enough
            each.display_type_rich = lambda ctx: ""  # noqa: ARG005 - the signature of Typer
    return parameters


def with_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the switch `--json`, if it has `--output`."""
    signature = inspect.signature(command, eval_str=True)
    if _OUTPUT not in signature.parameters:
        return command
    default = signature.parameters[_OUTPUT].default

    @functools.wraps(command)
    def command_with_json(is_json: bool, **values: Any) -> Any:
        if is_json:
            values[_OUTPUT] = _as_json(values[_OUTPUT], default)
        return command(**values)

    parameters = list(signature.parameters.values())
    after = list(signature.parameters).index(_OUTPUT) + 1
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters.insert(
        after, inspect.Parameter("is_json", kind, default=False, annotation=_JsonOption)
    )
    command_with_json.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command_with_json.__annotations__ = {each.name: each.annotation for each in parameters}
    return command_with_json


def _as_json(output: Enum, default: Enum) -> Enum:
    if output not in {default, type(output)(_JSON)}:
        raise typer.BadParameter(f"--json and --output {output.value}: give one of them")
    return type(output)(_JSON)
