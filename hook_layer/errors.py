"""Errors a user of the hook can meet.

Everything that is wrong with a configuration is a `ValueError`, raised before training starts.
Afterwards only `TrainingStoppedError` leaves the hook; other troubles are counted and logged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "HookConfigurationError",
    "InvalidCollectionConfigurationError",
    "NotSupportedYetError",
    "TrainingStoppedError",
    "nearest",
]


class HookConfigurationError(ValueError):
    """A hook was configured with a value that makes no sense."""


class InvalidCollectionConfigurationError(HookConfigurationError):
    """A collection of the user names neither tensors nor regular expressions."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Collection {name} has not been configured. Please fill in tensor_name or "
            f"include_regex, e.g. hook.get_collection({name!r}).include('relu')"
        )


class NotSupportedYetError(HookConfigurationError, NotImplementedError):
    """An option of the original client that this version does not have."""


class TrainingStoppedError(RuntimeError):
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


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint with the nearest valid name, or with all of them."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"valid are {', '.join(names)}"
