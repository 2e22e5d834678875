"""Tables in which one of the things is missing that keep a verdict right."""

from __future__ import annotations

from dataclasses import replace

from lambdas.shared.state_table import StateKey, StoredState
from tests.lambdas.histories.tables import MemoryTable


class UnconditionalTable(MemoryTable):
    """Whoever writes last is right."""

    def check_version(self, stored: StoredState) -> None:
        current = self.items.get(stored.key)
        assert current is None or current.key == stored.key


class TableWithoutCounter(MemoryTable):
    """Nobody can tell that a status was decided and not announced."""

    def load(self, key: StateKey) -> StoredState | None:
        stored = super().load(key)
        return None if stored is None else replace(stored, state=stored.state.announced())
