"""Judging a stored run by several rules side by side, so that it is read once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hook_layer.storage.base import Store
from rule_runtime.engine.file_order import FILES_AT_ONCE
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.run_files import current_run, last_sequences
from rule_runtime.trial.shared_reads import SharedReads
from rule_runtime.trial.step_index import list_index_files

__all__ = ["judge_stored_run"]

_STEPS_AT_ONCE: Final = FILES_AT_ONCE
"""Steps that a rule may be before the others: one worker's files that are asked for at once."""
_BYTES_AT_ONCE: Final = 16 << 20
"""Bytes of values after which a rule waits for the others, which may ask for the same."""


def judge_stored_run(
    store: Store,
    rules: Sequence[tuple[str, Rule]],
    *,
    on_start: Callable[[int], None] | None = None,
    on_judged: Callable[[str], None] = lambda _: None,
) -> Mapping[str, EvaluationState]:
    """Return the final state of each rule over a run that is judged as it is now.

    The rules take turns of a few steps each, and share what they read.

    Args:
        store: The trial's root; `SharedReads` to go on with what it has read.
        rules: The rules and the names under which to report them.
        on_start: Called with the number of steps; for it all index files are listed first.
        on_judged: Called for each of them, in words, once all rules are behind it.

    Raises:
        StorageError: If the storage cannot be read.
    """
    shared = store if isinstance(store, SharedReads) else SharedReads(store)
    run = current_run(shared)
    last = last_sequences(shared, run)
    ways = [_Way(name, Reconciler(shared, rule, run), shared, last) for name, rule in rules]
    num_told = num_steps = 0
    if on_start is not None:
        num_steps = len({name.step for _, name in list_index_files(shared)})
        on_start(num_steps)
    while left := [way for way in ways if not way.is_over]:
        to = min(way.num_steps for way in left) + _STEPS_AT_ONCE
        for way in sorted(left, key=lambda way: way.num_steps):
            if way.num_steps < to:
                way.go_on(to)
                to = to if way.is_over else min(to, way.num_steps)
        behind = min((way.num_steps for way in left if not way.is_over), default=num_steps)
        for number in range(num_told, min(behind, num_steps)):
            num_told = number + 1
            on_judged(f"{num_told} of the steps judged")
    return {way.name: way.state for way in ways}


class _Way:
    """One rule's way through the run; `num_steps` counts the steps behind it."""

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        shared: SharedReads,
        last: Mapping[str, int] | None,
    ) -> None:
        self.name = name
        self.state = EvaluationState.initial()
        self.num_steps = 0
        self.is_over = False
        self._reconciler = reconciler
        self._shared = shared
        self._last = last

    def go_on(self, to: int) -> None:
        """Judge steps until so many are behind it, or much was read."""
        limit = self._shared.num_bytes_read + _BYTES_AT_ONCE

        def may_go_on() -> bool:
            self.num_steps += 1
            return self.num_steps < to and self._shared.num_bytes_read < limit

        self.state = self._reconciler.advance(
            self.state, (), ended=True, last_sequences=self._last, may_go_on=may_go_on
        )
        self.is_over = not self._reconciler.has_more
