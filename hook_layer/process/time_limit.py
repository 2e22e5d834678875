"""Runs a function with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["within"]

_R = TypeVar("_R")


def within(timeout_s: float, action: Callable[[], _R]) -> _R:
    """Return the result of `action`, if it takes at most `timeout_s` seconds.

    Otherwise it continues in a thread, and its result is lost.

    Raises:
        TimeoutError: It took longer.
        Exception: Any error of `action`.
    """
    results: list[_R] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(action())
        except Exception as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="stepwatch-wait", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down
        return action()
    thread.join(timeout_s)
    if results:
        return results[0]
    raise errors[0] if errors else TimeoutError(f"no answer within {timeout_s:g} s")
