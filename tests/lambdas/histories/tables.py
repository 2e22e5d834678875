"""A state table in memory, under the conditions that the one in DynamoDB writes under."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from lambdas.shared.state_item import successor
from lambdas.shared.state_table import StateKey, StoredState, VersionConflictError
from rule_runtime.engine.state import EvaluationState


class MemoryTable:
    """The states in this process's memory.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.items: dict[StateKey, StoredState] = {}
        self._active: set[StateKey] = set()
        self._clock = clock

    def load(self, key: StateKey) -> StoredState | None:
        return self.items.get(key)

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        self.check_version(stored)
        content = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
        saved = successor(stored, content, self._clock())
        is_done = saved.state.ended and saved.state.is_announced
        (self._active.discard if is_done else self._active.add)(stored.key)
        current = self.items.get(stored.key)
        announced = 0 if current is None else current.state.announced_transition
        self.items[stored.key] = _with_announced(saved, announced)
        return saved

    def check_version(self, stored: StoredState) -> None:
        current = self.items.get(stored.key)
        if (0 if current is None else current.version) != stored.version:
            raise VersionConflictError(stored.key, current)

    def mark_announced(self, stored: StoredState) -> StoredState:
        current = self.items[stored.key]
        if stored.state.ended and current.version == stored.version:
            self._active.discard(stored.key)
        announced = max(current.state.announced_transition, stored.state.transition)
        self.items[stored.key] = _with_announced(current, announced)
        return replace(stored, state=stored.state.announced())

    def active(self) -> list[StateKey]:
        """Return the evaluations that a sweep looks at."""
        return sorted(self._active, key=lambda key: key.run)


def _with_announced(stored: StoredState, transition: int) -> StoredState:
    return replace(stored, state=replace(stored.state, announced_transition=transition))
