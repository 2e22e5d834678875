"""Troubles of the hook stay in it: they are counted, logged once, and end the part they hit."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from hook_layer.errors import HookConfigurationError, TrainingStoppedError

__all__ = ["FailureLog", "Guarded", "guarded"]

logger = logging.getLogger("stepwatch")

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Self = TypeVar("_Self", bound="Guarded")


class FailureLog:
    """Which parts of a hook failed and are switched off.

    Attributes:
        errors: Number of errors by part.
    """

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()

    def is_off(self, part: str) -> bool:
        """Tell whether a part failed before."""
        return part in self.errors

    def record(self, part: str, error: BaseException) -> None:
        """Count an error of a part; the first of them is logged with its stack."""
        self.errors[part] += 1
        if self.errors[part] == 1:
            logger.error(
                "capturing %s failed and is switched off; training goes on", part, exc_info=error
            )


class Guarded(Protocol):
    """What `guarded` needs of the object that it guards."""

    failures: FailureLog

    @property
    def is_active(self) -> bool:
        """Whether anything is done at all."""
        ...


def guarded(
    part: str,
) -> Callable[[Callable[Concatenate[_Self, _P], _R]], Callable[Concatenate[_Self, _P], _R | None]]:
    """Keep the errors of a method away from training; the method must be harmless to leave out.

    Only a request to stop and mistakes in the configuration get through.

    Args:
        part: The part of the hook that an error switches off.
    """

    def decorate(
        method: Callable[Concatenate[_Self, _P], _R],
    ) -> Callable[Concatenate[_Self, _P], _R | None]:
        def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            if not self.is_active or self.failures.is_off(part):
                return None
            try:
                return method(self, *args, **kwargs)
            except (TrainingStoppedError, HookConfigurationError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
                self.failures.record(part, error)
                return None

        update_wrapper(call, method)
        return call

    return decorate
