"""Errors that the hook raises to users.

Every configuration error is a `ValueError`, raised before training starts. After that, the hook
raises only `TrainingStoppedError`, and counts and logs other errors.
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
"""Similarity (difflib's ratio) of a misspelled name: one letter of five, or two swapped letters."""


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
    """A hook was configured with an invalid value."""


class ConfigurationFileNotFoundError(HookConfigurationError, FileNotFoundError):
    """The configuration file does not exist."""


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

    A training script may catch it, e.g. to save a checkpoint. The hook is already closed then.

    Attributes:
        reason: The reason in `stop.json`, a sentence.
        rule: Name of the rule configuration that requested the stop, if any.
    """

    def __init__(self, reason: str, rule: str | None = None) -> None:
        super().__init__(f"training was stopped: {reason}" + (f" (rule {rule})" if rule else ""))
        self.reason = reason
        self.rule = rule


def close_match(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that `name` may be a misspelling of; None if there is none."""
    close = difflib.get_close_matches(name, sorted(valid), n=1)
    return close[0] if close else None


def misspelled(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that `name` very likely means; None if it may be another name.

    A name that contains a valid one, such as `my_weights` or `weights2`, is another name.
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
