"""Replaces functions of frameworks by ones that also call ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias

from hook_layer.errors import TrainingStoppedError
from hook_layer.process.tracebacks import hide_frame

__all__ = ["Before", "patch", "patched", "replacing"]

logger = logging.getLogger("stepwatch")

_Function: TypeAlias = Callable[..., Any]
_Given: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Before: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], _Given | None]
"""Called with the arguments of a call, by position and by name; may return other ones."""
_NOTHING: Final = nullcontext()


def patch(
    owner: Any,
    name: str,
    *,
    before: Before | None = None,
    after: Callable[..., None] | None = None,
    within: AbstractContextManager[Any] = _NOTHING,
) -> Callable[[], None]:
    """Replace a function in its module or class, see `patched`.

    Returns:
        A function that puts the original back, unless somebody else has replaced it since.
    """
    original = getattr(owner, name)
    function = patched(original, before=before, after=after, within=within)
    setattr(owner, name, function)

    def restore() -> None:
        if getattr(owner, name) is function:
            setattr(owner, name, original)

    return restore


def patched(
    original: _Function,
    *,
    before: Before | None = None,
    after: Callable[..., None] | None = None,
    within: AbstractContextManager[Any] = _NOTHING,
) -> _Function:
    """Return a function that calls another one, and ours.

    Errors of ours are logged and do not reach the script, other than `TrainingStoppedError`.

    Args:
        original: The other one.
        before: Called before it, with its arguments.
        after: Called after it, with its result and its arguments, unless it raised.
        within: A context in which it runs.
    """

    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            args, kwargs = _tried(before, args, kwargs) or (args, kwargs)
        try:
            with within:
                result = original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        if after is not None:
            _tried(after, result, *args, **kwargs)
        return result

    return function


def replacing(
    original: _Function, name: str, replace: Callable[[Mapping[str, Any]], Any]
) -> Before:
    """Return a function that replaces one argument of each call.

    Args:
        original: The function that is called.
        name: Name of the argument.
        replace: Called with all arguments that are given, by name; returns the new one.
    """
    parameters = signature(original)

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given | None:
        try:
            given = parameters.bind(*args, **kwargs)
        except TypeError:  # the function says what is wrong
            return None
        given.arguments[name] = replace(given.arguments)
        return given.args, given.kwargs

    return before


def _tried(function: _Function, /, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except TrainingStoppedError:
        raise
    except Exception:
        logger.exception("watching the training failed; the script continues without a hook")
        return None
