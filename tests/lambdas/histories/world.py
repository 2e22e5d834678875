"""A small cloud: a job writes, events get lost, evaluators crash and overtake each other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import StorageError
from hook_layer.storage.memory import MemoryStore
from lambdas.evaluate_rule.continuation import Continuations, OutOfTimeError
from lambdas.evaluate_rule.job_evaluation import JobEvaluation
from lambdas.evaluate_rule.job_event import JobEvent
from lambdas.evaluate_rule.messages import TensorObject
from lambdas.evaluate_rule.publication import Publication
from lambdas.evaluate_rule.run_evaluation import ContendedStateError, RunEvaluation
from lambdas.shared.state_table import RuleItems, StateKey
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.state import EvaluationState
from tests.lambdas.histories.effects import (
    RULE,
    Bus,
    CrashError,
    Effects,
    FlakyStore,
    Limited,
    OnlyWitness,
    Quiet,
    Registry,
)
from tests.lambdas.histories.jobs import (
    FIRST_RUN,
    Job,
    SavedFile,
    drawn_job,
    put_collections,
)
from tests.lambdas.histories.tables import MemoryTable
from tests.lambdas.histories.tape import Tape

PATIENCE = Patience(seconds=60.0, steps=2)
LONG_WAIT_S = 6 * PATIENCE.seconds + 1
MAX_ROUNDS = 60
MAX_NESTED = 2


@dataclass
class World:
    """One history.

    Attributes:
        tape: What happens.
        make_table: Makes the state table, given the clock; it tells which evaluations are active.
        bus: Takes the status events.
        sweeps: False for a world in which nobody sweeps.
        name: Name of the job.
        seen: How often what happened.
    """

    tape: Tape
    make_table: Callable[[Callable[[], float]], Any] = MemoryTable
    bus: Any = field(default_factory=Bus)
    sweeps: bool = True
    name: str = "job"
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.now = 1000.0
        self.job: Job = drawn_job(self.tape)
        self.store = FlakyStore(f"{self.name}/debug-output", self._is_storage_away)
        self.root_uri = self.store.uri
        self.created_at: dict[str, float] = {}
        self.results = MemoryStore("results")
        self.table = self.make_table(lambda: self.now)
        self.queue: list[Any] = []
        self.decided: list[tuple[StateKey, int, str]] = []
        self.depth = 0
        self.is_calm = False
        self.waiting = [list(files) for files in self.job.uploads]

    @property
    def key(self) -> StateKey:
        return StateKey(self.root_uri, self.job.run or "", RULE)

    @property
    def run_name(self) -> tuple[str, str]:
        return self.root_uri, self.job.run or ""

    @property
    def state(self) -> EvaluationState:
        """The committed state of the run that ends."""
        stored = self.table.load(self.key)
        assert stored is not None
        return stored.state

    # ---------------------------------------------------------------------------- what happens

    def run(self) -> None:
        """Let the whole history happen, until nothing is left to do."""
        if self.job.run is None:
            put_collections(self.store, self.job)
        for file in self.job.earlier:
            self._upload(file)
            self._something_happens(may_upload=False)
        while any(self.waiting):
            self._something_happens(may_upload=True)
        if self.job.late or self.tape.once_in(2):
            self._wait_long()
        for file in self.job.late:
            self._upload(file)
            self._something_happens(may_upload=False)
        self._put(END_MARKER, self.job.marker)
        for file in self.job.after_end:
            self._something_happens(may_upload=False)
            self._put(file.key, file.content, may_get_lost=False)
        while not self.tape.is_used_up:
            self._something_happens(may_upload=False)
        self.calm_down()

    def calm_down(self) -> None:
        """Let all that is on its way arrive, and sweeps look until they find nothing to do."""
        self.is_calm = True
        if self.table.load(self.key) is None or self.tape.once_in(4):
            self.queue.append(Wake(*self.run_name, WakeReason.ENDED))  # the job is over
        versions: list[int] | None = None
        for _ in range(MAX_ROUNDS):
            self._deliver_all()
            before, versions = versions, self._versions()
            if versions == before:
                break
            self.now += 61.0
            self._sweep()
        assert versions == self._versions()
        self.is_calm = False

    def _versions(self) -> list[int]:
        names = [self.key, StateKey(self.root_uri, FIRST_RUN, RULE)]
        return [stored.version for key in names if (stored := self.table.load(key))]

    def _something_happens(self, *, may_upload: bool) -> None:
        action = self.tape.below(8)
        if may_upload and action < 3:
            self._upload_next()
        elif action < 6:
            self._deliver(1 + self.tape.below(5))
        elif action == 6:
            self.now += (1.0, 30.0, 61.0)[self.tape.below(3)]
        else:
            self._sweep()

    def _upload_next(self) -> None:
        able = [files for files in self.waiting if files]
        self._upload(able[self.tape.below(len(able))].pop(0))

    def _upload(self, file: SavedFile) -> None:
        self._put(file.key, file.content)

    def _put(self, key: str, content: bytes, *, may_get_lost: bool = True) -> None:
        self.store.put(key, content)
        self.created_at[key] = self.now
        fate = self.tape.below(10)
        if may_get_lost and fate >= 8:
            self.seen["event lost"] += 1
            return
        self.seen["event doubled"] += fate == 7
        self.queue += [key] * (2 if fate == 7 else 1)

    def _wait_long(self) -> None:
        """Let so much time go by that nobody is waited for any longer, and see that it is so."""
        self.is_calm = True
        for _ in range(self.job.num_workers + 3):
            self._deliver_all()
            self._sweep()
            self._deliver_all()
            self.now += LONG_WAIT_S
        self.is_calm = False
        stored = self.table.load(self.key)
        if stored is None:
            return
        progress = stored.state.progress
        if stored.state.counts.failure or progress.num_workers is None:
            return
        assert not [name for name, track in progress.workers.items() if track.pending]
        last = {f.worker: f.step for of_worker in self.job.uploads for f in of_worker}
        has_waited = len(last) < self.job.num_workers or len(set(last.values())) > 1
        assert stored.state.counts.given_up > 0 or not has_waited
        assert not stored.state.counts.given_up or stored.state.counts.last_problem

    def _sweep(self) -> None:
        for key in self.table.active() if self.sweeps else ():
            self.queue.append(Wake(key.root_uri, key.run_id, WakeReason.SWEEP))

    # ---------------------------------------------------------------------------- evaluators

    def _deliver_all(self) -> None:
        for _ in range(MAX_ROUNDS):
            if not self.queue:
                return
            self._deliver(len(self.queue))
        raise AssertionError(f"still on the way: {self.queue}")

    def _deliver(self, count: int) -> None:
        """Hand some messages to an evaluator; those that fail stay in the queue."""
        if not self.queue:
            return
        messages = [self.queue[self.tape.below(len(self.queue))] for _ in range(count)]
        if self.is_calm:
            messages = self.queue[:count]
        if not self._succeeds(messages):
            return
        for message in messages:
            if message in self.queue and not (not self.is_calm and self.tape.once_in(8)):
                self.queue.remove(message)

    def _succeeds(self, messages: Sequence[Any]) -> bool:
        objects = [
            TensorObject(self.root_uri, message, self.created_at[message])
            for message in sorted({message for message in messages if isinstance(message, str)})
        ]
        wakes = [message for message in messages if isinstance(message, Wake)]
        limit = 0 if self.is_calm else self.tape.below(6)
        self.depth += 1
        try:
            self._job_evaluation().evaluate(
                JobEvent(
                    root_uri=self.root_uri, budget=Limited(limit), objects=objects, wakes=wakes
                ),
                self.store,
            )
        except (CrashError, ContendedStateError, OutOfTimeError, StorageError):
            assert not self.is_calm
            return False
        finally:
            self.depth -= 1
        return True

    def _happens(self) -> None:
        """Decide what becomes of an evaluator that is about to do something, or has done it."""
        if self.is_calm:
            return
        fate = self.tape.below(24)
        if fate == 23:
            self.seen["crash"] += 1
            raise CrashError
        if fate >= 21 and self.depth <= MAX_NESTED:
            self.seen["overtaken"] += 1
            self._deliver(1 + self.tape.below(3))  # another one is faster

    def _is_storage_away(self) -> bool:
        is_away = not self.is_calm and self.tape.once_in(24)
        self.seen["storage away"] += is_away
        return is_away

    def _job_evaluation(self) -> JobEvaluation:
        registry: Any = Registry(self.root_uri, self.job.run or "")
        telemetry: Any = Quiet()
        return JobEvaluation(OnlyWitness(), registry, self._evaluation(), telemetry)

    def _evaluation(self) -> RunEvaluation:
        effects: Any = Effects(
            self.table, self.bus, self.queue, self._happens, self.decided, self.seen
        )
        telemetry: Any = Quiet()
        states = RuleItems(effects)
        return RunEvaluation(
            rule_source=OnlyWitness(),
            states=states,
            publication=Publication(
                bus=effects,
                open_store=lambda _: self.results,
                continuations=Continuations(RULE, effects, telemetry),
                telemetry=telemetry,
            ),
            telemetry=telemetry,
            patience=PATIENCE,
            clock=lambda: self.now,
            sleep=lambda _: None,
            jitter=random.Random(0),
        )
