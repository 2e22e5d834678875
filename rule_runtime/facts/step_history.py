"""Remembers the last few saved steps of every tensor.

Steps that have the same tensors are of one kind. The last few steps of each kind are remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

__all__ = ["StepHistory"]

_MAX_KINDS: Final = 16
"""Kinds that are remembered; of more, the one that was not seen for longest is dropped."""

_SEPARATORS: Final = ("\x1f", "\x1e")


class StepHistory:
    """Numbers of the steps seen last; at most 16 times `num_steps` of them.

    Args:
        data: What `to_json` returned; empty for no steps.
        num_steps: How many steps of each tensor are remembered.
    """

    def __init__(self, data: Iterable[Sequence[Any]], *, num_steps: int) -> None:
        self._num_steps = num_steps
        self._kinds: dict[str, list[int]] = {kind: list(steps) for kind, steps in data}

    def to_json(self) -> list[list[Any]]:
        """Return the history as JSON."""
        return [[kind, steps] for kind, steps in self._kinds.items()]

    def newest_first(self) -> list[int]:
        """Return all steps that are remembered."""
        return sorted({step for steps in self._kinds.values() for step in steps}, reverse=True)

    def add(self, step: int, tensors: Iterable[tuple[str, str]]) -> None:
        """Add a step.

        Args:
            step: Its number, greater than those before.
            tensors: Name and worker of each tensor that it has.
        """
        within, between = _SEPARATORS
        text = between.join(sorted(within.join(pair) for pair in tensors))
        kind = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        steps = self._kinds.pop(kind, [])
        self._kinds[kind] = [*steps, step][-self._num_steps :]
        if len(self._kinds) > _MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
