"""A run that is looked at again and again, as an evaluator does; the state goes through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.counting_store import CountingStore


class Diary(Rule):
    """Writes down the steps that it was shown, and who wrote them."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        writers = [int(worker.rsplit("_", 1)[1]) for worker in step.workers]
        memory["steps"] = [*memory.get("steps", []), [step.step, writers]]
        return Passed()


@dataclass
class FollowedRun:
    """A run of some workers, and the state of a rule over it."""

    num_workers: int = 1
    run: str | None = "02"
    rule: Rule = field(default_factory=Diary)
    patience: Patience = field(default_factory=Patience)
    store: CountingStore = field(default_factory=CountingStore)
    now: float | None = 1000.0
    state: EvaluationState = field(default_factory=EvaluationState.initial)
    has_more: bool = False

    def __post_init__(self) -> None:
        self.trial = TrialBuilder(self.store, run=self.run, num_workers=self.num_workers)

    def write(self, *steps: int, worker: int = 0, **tensors: Any) -> list[str]:
        saved = tensors or {"gradient/a": [1.0]}
        return [self.trial.step(step, saved, worker=f"worker_{worker}") for step in steps]

    def look(self, keys: Sequence[str] = (), **arguments: Any) -> list[str]:
        """Take in the files; return the calls that this costs besides reading them."""
        files = load_step_files(self.store, keys)
        self.store.reset()
        reconciler = Reconciler(self.store, self.rule, self.run, patience=self.patience)
        state = reconciler.advance(self.state, files, **{"now": self.now, **arguments})
        self.state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
        assert self.state == state
        self.has_more = reconciler.has_more
        return self.store.calls

    def look_in_parts(
        self,
        keys: Sequence[str] = (),
        *,
        may_go_on: Callable[[], bool] = lambda: False,
        ended: bool = False,
        last_sequences: Mapping[str, int] | None = None,
    ) -> int:
        """Look until nothing is left, later without arguments; return how often."""
        self.look(keys, ended=ended, last_sequences=last_sequences, may_go_on=may_go_on)
        count = 1
        while self.has_more:
            before = self.state
            self.look(may_go_on=may_go_on)
            assert self.state != before
            count += 1
        return count

    def hide(self, key: str) -> bytes:
        """Take a file away, as if it had not been written yet."""
        data = self.store.get(key)
        self.store.delete(key)
        return data

    @property
    def fed(self) -> list[int]:
        return [step for step, _ in self.state.memory.get("steps", [])]

    @property
    def writers(self) -> dict[int, list[int]]:
        """Who wrote the steps that were fed."""
        return dict(self.state.memory.get("steps", []))
