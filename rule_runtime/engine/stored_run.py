"""Evaluates rules over a stored run: `stepwatch.evaluate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hook_layer.storage.base import Store, open_store
from rule_runtime.configuration.named_rules import Rules, named_rules
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.run_feed import FILES_AT_ONCE
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.run_files import current_run, last_sequences
from rule_runtime.trial.saved_steps import check_has_steps
from rule_runtime.trial.sessions import one_run_at
from rule_runtime.trial.shared_reads import SharedReads
from rule_runtime.trial.step_index import list_index_files

__all__ = ["evaluate", "evaluate_stored_run"]

_STEPS_AT_ONCE: Final = FILES_AT_ONCE
"""Steps per turn of a rule: the number of one worker's files that are read together."""
_BYTES_AT_ONCE: Final = 16 << 20
"""Bytes of values after which a rule's turn ends, so that the others share the cache."""


def evaluate(
    path: str | os.PathLike[str], rules: Rules = "recommended"
) -> Mapping[str, EvaluationState]:
    """Evaluate rules over a stored run, and return the final state of each by name.

    ```python
    states = stepwatch.evaluate("runs/mnist", ["NonFinite", WeightNorm(bound=5.0)])
    states["WeightNorm"].status  # RuleStatus.ISSUES_FOUND
    ```

    Args:
        path: Folder or `s3://` URI of a run, or of a session with one run.
        rules: Name of a pack; or rules and names of built-in rules; or a dict of names and rules.

    Raises:
        ValueError: No step is stored there, the session has several runs, a rule or pack does not
            exist, no rule is given, or two have the same name.
        TypeError: An entry is not a rule.
        StorageError: The storage cannot be read.
    """
    named = named_rules(rules)
    run = one_run_at(os.fspath(path))
    check_has_steps(run)
    return evaluate_stored_run(open_store(run), list(named.items()))


def evaluate_stored_run(
    store: Store,
    rules: Sequence[tuple[str, Rule]],
    *,
    on_start: Callable[[int], None] | None = None,
    on_evaluated: Callable[[str], None] = lambda _: None,
) -> Mapping[str, EvaluationState]:
    """Return the final state of each rule over a stored run.

    The rules take turns of a few steps each and share their reads, so the run is read once.

    Args:
        store: The trial's root; pass `SharedReads` to reuse its cache.
        rules: The rules by displayed name.
        on_start: Called with the number of steps, after listing all index files.
        on_evaluated: Called with a message when all rules have evaluated a step.
    """
    shared = store if isinstance(store, SharedReads) else SharedReads(store)
    run = current_run(shared)
    last = last_sequences(shared, run)
    judges = [_Judge(name, Reconciler(shared, rule, run), shared, last) for name, rule in rules]
    num_reported = num_steps = 0
    if on_start is not None:
        num_steps = len({name.step for _, name in list_index_files(shared)})
        on_start(num_steps)
    while active := [judge for judge in judges if not judge.is_done]:
        end = min(judge.num_steps for judge in active) + _STEPS_AT_ONCE
        for judge in sorted(active, key=lambda judge: judge.num_steps):
            if judge.num_steps < end:
                judge.take_turn(end)
                end = end if judge.is_done else min(end, judge.num_steps)
        judged = min((judge.num_steps for judge in active if not judge.is_done), default=num_steps)
        for number in range(num_reported, min(judged, num_steps)):
            num_reported = number + 1
            on_evaluated(f"{num_reported} of the steps evaluated")
    return {judge.name: judge.state for judge in judges}


@dataclass
class _Judge:
    """One rule that evaluates the run in turns; `num_steps` counts its steps."""

    name: str
    reconciler: Reconciler
    shared: SharedReads
    last_sequences: Mapping[str, int] | None
    state: EvaluationState = field(default_factory=EvaluationState.initial)
    num_steps: int = 0
    is_done: bool = False

    def take_turn(self, end: int) -> None:
        """Evaluate steps up to a number of steps or bytes."""
        limit = self.shared.num_bytes_read + _BYTES_AT_ONCE

        def may_go_on() -> bool:
            self.num_steps += 1
            return self.num_steps < end and self.shared.num_bytes_read < limit

        self.state = self.reconciler.advance(
            self.state, (), ended=True, last_sequences=self.last_sequences, may_go_on=may_go_on
        )
        self.is_done = not self.reconciler.has_more
