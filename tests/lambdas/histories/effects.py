"""What evaluators do to the world, with all that may happen to them before and afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hook_layer.storage.base import StorageError
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts.events import STATUS_DETAIL_TYPE
from lambdas.evaluate_rule import publication
from lambdas.evaluate_rule.job_limits import TimeBudget
from lambdas.shared.registration import Registration
from lambdas.shared.state_table import StateKey, StateTable, StoredState, VersionConflictError
from lambdas.shared.wake import Wake
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.histories.jobs import Witness

RULE = "Witness"


class CrashError(Exception):
    """The process died here."""


class Quiet:
    """Logs and metrics that nobody reads."""

    def job(self, *_: object) -> AbstractContextManager[None]:
        return nullcontext()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class FlakyStore(MemoryStore):
    """A store that cannot always be listed.

    Args:
        name: Part of its URI.
        fails: Decides whether it cannot.
    """

    def __init__(self, name: str, fails: Callable[[], bool]) -> None:
        super().__init__(name)
        self._fails = fails

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        if self._fails():
            raise StorageError("the storage is away")
        return super().list(prefix, after)


@dataclass(frozen=True)
class Registry:
    """Says that a folder is about one job, which asks for the rule."""

    root_uri: str
    run: str

    def asks(
        self, store: MemoryStore, wants: Callable[[Registration], object], *, has_ended: bool
    ) -> bool:
        assert store.uri == self.root_uri
        return bool(wants(self.current(store))) or has_ended

    def of_run(self, store: MemoryStore, run: str) -> Registration:
        assert store.uri == self.root_uri
        return Registration(self.root_uri, "job", run)

    def current(self, store: MemoryStore) -> Registration:
        return self.of_run(store, self.run)


class OnlyWitness:
    """An evaluator that has one rule."""

    def names(self, job: Registration) -> list[str]:
        return [RULE] if job.rules is None or RULE in job.rules else []

    def includes(self, name: str, job: Registration) -> bool:
        return name in self.names(job)

    def rule(self, name: str, job: Registration) -> Witness:
        assert name == RULE
        assert job.rules is None
        return Witness()


class Bus:
    """Keeps the statuses that were announced."""

    def __init__(self) -> None:
        self.announced: list[tuple[StateKey, str]] = []

    def publish(self, detail_type: str, detail: Mapping[str, Any], **_: object) -> None:
        assert detail_type == STATUS_DETAIL_TYPE
        self.announced.append(announced_status(detail))


def announced_status(detail: Mapping[str, Any]) -> tuple[StateKey, str]:
    """Return run and rule of a status event, and the status."""
    (status,) = detail["DebugRuleEvaluationStatuses"]
    key = StateKey(detail["DebugOutputUri"], detail["RunId"], status["RuleConfigurationName"])
    return key, status["RuleEvaluationStatus"]


@dataclass(frozen=True)
class Effects:
    """Stands before all that an evaluator does to the world, and lets it die or be overtaken."""

    states: StateTable
    bus: publication.Bus
    queue: list[object]
    happens: Callable[[], None]
    decided: list[tuple[StateKey, int, str]]
    seen: Counter[str]

    def load(self, key: StateKey) -> StoredState | None:
        found = self.states.load(key)
        self.happens()
        return found

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        self.happens()
        try:
            saved = self.states.save(stored, state)
        except VersionConflictError:
            self.seen["conflict"] += 1
            raise
        self.seen["given up"] += state.counts.given_up > stored.state.counts.given_up
        self.seen["replayed"] += state.progress.replayed > stored.state.progress.replayed
        if state.transition != stored.state.transition:
            self.decided.append((stored.key, state.transition, state.status.value))
        self.happens()
        return saved

    def mark_announced(self, stored: StoredState) -> StoredState:
        self.happens()
        marked = self.states.mark_announced(stored)
        self.happens()
        return marked

    def publish(self, detail_type: str, detail: Mapping[str, Any], **more: Any) -> None:
        self.happens()
        self.bus.publish(detail_type, detail, **more)
        self.happens()

    def send(self, rule: str, wake: Wake) -> None:
        assert rule == RULE
        self.happens()
        self.seen["continued"] += 1
        self.queue.append(wake)
        self.happens()


class Limited(TimeBudget):
    """An evaluator's time: for `limit` pieces of work, for any number if it is 0 or 5."""

    def __init__(self, limit: int) -> None:
        rest = iter(range(limit - 1))
        is_endless = limit in (0, 5)
        super().__init__(lambda: 1.0 if is_endless or next(rest, None) is not None else 0.0, 1.0)

    def share(self, num: int) -> TimeBudget:
        assert num == 1
        return self
