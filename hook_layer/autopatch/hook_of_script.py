"""A hook that a script made of a configuration file, for the training that begins first."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.core.hook import BaseHook

__all__ = ["HookOfScript"]

_Hook = TypeVar("_Hook", bound=BaseHook)


@dataclass(frozen=True)
class HookOfScript(HookSource):
    """Gives a hook of the script to one training, instead of making hooks.

    `hook` returns it; None if it is gone.
    """

    hook: Callable[[], BaseHook | None] = lambda: None

    @property
    def decides_steps(self) -> bool:
        """False: modes and steps are those of the hook, which the script has."""
        return False

    def offers(self, hook: BaseHook) -> bool:
        """Return whether this hook waits here for a training."""
        return self.hook() is hook

    def is_needed(self, earlier: Collection[BaseHook] | None = None) -> bool:  # noqa: ARG002
        """Return whether the hook still waits for a training."""
        hook = self.hook()
        return not self._made and hook is not None and hook.is_active

    def make(
        self, hook_type: type[_Hook], earlier: Collection[BaseHook] | None = None
    ) -> _Hook | None:
        """Return the hook, once."""
        hook = self.hook()
        if not self.is_needed(earlier) or not isinstance(hook, hook_type):
            return None
        self._made.append(hook)
        return hook
