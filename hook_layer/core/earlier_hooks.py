"""Closes hooks of earlier runs of the process after those have ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol
from weakref import ref

__all__ = ["IDLE_STEPS", "EarlierHooks"]

IDLE_STEPS: Final = 20
"""Steps of a later run after which an earlier run without a step counts as ended.

The outer loop of a meta-learner makes a step after each inner loop, which may have that many.
"""


class CountingHook(Protocol):
    """A hook that counts steps."""

    @property
    def step(self) -> int:
        """Its global step."""
        ...

    def close(self) -> None:
        """Close the hook."""
        ...


class EarlierHooks:
    """Closes hooks without a step while a later hook makes 20.

    Args:
        hooks: The hooks; referenced weakly.
    """

    def __init__(self, hooks: Iterable[CountingHook]) -> None:
        self._steps = [(ref(hook), hook.step) for hook in hooks]
        self._num_steps = 0

    def count_step(self) -> bool:
        """Count a step of the later hook; return whether any earlier hook may still be open."""
        self._num_steps += 1
        if self._steps and self._num_steps <= IDLE_STEPS:
            return True
        for known, step in self._steps:
            hook = known()
            if hook is not None and hook.step == step:
                hook.close()
        return False
