"""The port through which evaluators read and write states: those of several rules over one run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lambdas.shared.state_item import StateKey, StoredState

if TYPE_CHECKING:
    from rule_runtime.engine.state import EvaluationState

__all__ = ["Changes", "GroupConflictError", "GroupTable", "StoredGroup"]

Changes = Mapping[str, tuple[StoredState, "EvaluationState"]]
"""By rule: what it has stored, and its next state."""


@dataclass(frozen=True)
class StoredGroup:
    """The states of a run that one evaluator writes together.

    Attributes:
        key: The run, and the name of the item.
        states: The states by rule; a rule without a state is missing.
        version: Increased by each write; 0 means that nothing is stored yet.
        adopted: Rules whose state another item holds, and this one does not hold yet, with the
            object of the memory there.
        lost: Rules whose memory was removed, with the reason; they start from the beginning.
        indexed_at_ms: Time of the last files in the index, milliseconds since the epoch.
        damage: Why the item holds no states; empty if it does, or does not exist.
        damaged: Attributes of such an item, as read.
    """

    key: StateKey
    states: Mapping[str, StoredState] = field(default_factory=dict)
    version: int = 0
    adopted: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    indexed_at_ms: int = 0
    damage: str = ""
    damaged: Mapping[str, Any] = field(default_factory=dict)


class GroupConflictError(Exception):
    """Another evaluator wrote the states first.

    Attributes:
        current: What is stored now.
    """

    def __init__(self, current: StoredGroup) -> None:
        super().__init__(f"another evaluator wrote {current.key.rule} for {current.key.run}")
        self.current = current


class GroupTable(Protocol):
    """Reads and writes groups of states."""

    def load(self, key: StateKey, rules: Iterable[str]) -> StoredGroup:
        """Return the states under a key, and those of `rules` from other items."""
        ...

    def save(self, group: StoredGroup, changes: Changes) -> StoredGroup:
        """Replace the states of some rules.

        Raises:
            GroupConflictError: The table no longer contains `group`.
            MemoryTooLargeError: The state of a rule is too large; nothing was written.
        """
        ...

    def mark_announced(self, group: StoredGroup, rules: Collection[str]) -> StoredGroup:
        """Record that the latest transitions of some rules were announced."""
        ...

    def retire(self, key: StateKey) -> None:
        """Remove the state of a rule from the item of the other mode, if these hold it, too."""
        ...
