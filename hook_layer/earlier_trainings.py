"""The trainings of a process before the one that continues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import ref

if TYPE_CHECKING:
    from hook_layer.hook import BaseHook

__all__ = ["IDLE_STEPS", "EarlierTrainings"]

IDLE_STEPS: Final = 20
"""Steps of a later training during which an earlier one that has not ended makes a step, too: as of
the outer loop of a meta-learner around an inner training."""


class EarlierTrainings:
    """Closes the hooks of earlier trainings that make no step while the later one makes 20.

    Args:
        hooks: The hooks.
    """

    def __init__(self, hooks: Iterable[BaseHook] = ()) -> None:
        self._steps = [(ref(hook), hook.step) for hook in hooks]
        self._num_begun = 0

    def step_begins(self) -> None:
        """Count a step of the later training."""
        if not self._steps:
            return
        self._num_begun += 1
        if self._num_begun <= IDLE_STEPS:
            return
        for known, step in self._steps:
            hook = known()
            if hook is not None and hook.step == step:
                hook.close()
        self._steps = []
