"""Errors a user of the hook can meet.

Everything that is wrong with a configuration is a `ValueError`, raised before training starts.
Afterwards only `TrainingStoppedError` leaves the hook; other troubles are counted and logged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Final, TypeVar

__all__ = [
    "ConfigurationFileNotFoundError",
    "HookConfigurationError",
    "InvalidCollectionConfigurationError",
    "PicklableError",
    "TrainingStoppedError",
    "close_match",
    "misspelled",
    "nearest",
]


_LIKELY: Final = 0.8
"""Likeness (difflib's ratio) of a misspelled name: a letter of five, or two that changed places."""


_Error = TypeVar("_Error", bound=BaseException)


class PicklableError(Exception):
    """An error that stays what it is on its way to another process.

    Python would call its constructor with the message, which a pool of processes waits for forever
    where the constructor needs something else.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[_Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> _Error:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class HookConfigurationError(ValueError):
    """A hook was configured with a value that makes no sense."""


class ConfigurationFileNotFoundError(HookConfigurationError, FileNotFoundError):
    """There is no configuration file."""


class InvalidCollectionConfigurationError(PicklableError, HookConfigurationError):
    """A collection of the user names neither tensors nor regular expressions."""

    def __init__(self, name: str, valid: Iterable[str] = ()) -> None:
        close = close_match(name, valid)
        super().__init__(
            f"Collection {name} has not been configured. Please fill in tensor_name or "
            f"include_regex, e.g. hook.get_collection({name!r}).include('relu')"
            + (f"; or did you mean {close!r}?" if close else "")
        )


class TrainingStoppedError(PicklableError, RuntimeError):
    """Training was asked to stop by a rule; raised where the next step would have begun.

    A training script may catch it, e.g. to save a checkpoint; the hook is closed by then.

    Attributes:
        reason: Why, in a sentence, as found in `stop.json`.
        rule: Name of the rule configuration that asked for it, where one did.
    """

    def __init__(self, reason: str, rule: str | None = None) -> None:
        super().__init__(f"training was stopped: {reason}" + (f" (rule {rule})" if rule else ""))
        self.reason = reason
        self.rule = rule


def close_match(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that `name` may be a misspelling of, if there is one."""
    close = difflib.get_close_matches(name, sorted(valid), n=1)
    return close[0] if close else None


def misspelled(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that `name` is very likely meant to be; None if it may be another.

    A longer name that holds a valid one, as `my_weights` or `weights2`, is a name of its own.
    """
    names = {valid_name.lower(): valid_name for valid_name in sorted(valid)}
    lower = name.lower()
    if name in names.values() or any(other in lower != other for other in names):
        return None
    close = difflib.get_close_matches(lower, names, n=1, cutoff=_LIKELY)
    return names[close[0]] if close else None


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint with the nearest valid name, or with all of them."""
    names = sorted(valid)
    close = close_match(name, names)
    return f"did you mean {close!r}?" if close else f"valid are {', '.join(names)}"
