"""Evaluates one rule on one run of a job: advances the state, saves it, reports changes.

The order matters. The state is written first, with its transition counted; then the event goes out;
then the transition is noted as announced. A crash in between leaves the two counters apart, and
anyone who sees them so announces again: nobody misses a verdict, and some see one twice.

A call that has no time for everything saves what it has done, and only then has a later call go on.

Three things can prevent an evaluation. Each ends as Error with its reason. When
the parameters make no rule, all that was learned is kept, and every look tries again: somebody may
have corrected the deployment. When the rule itself fails, or the state does not fit into the table,
the run is given up for good. A verdict never turns back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from hook_layer.storage.base import Store
from lambdas.evaluate_rule.obstacles import MAX_TEXT, blocked, given_up, unblocked
from lambdas.evaluate_rule.quiet_run import QuietRun
from lambdas.evaluate_rule.rules import RuleConfigurationError
from lambdas.shared.state_table import (
    MemoryLostError,
    MemoryTooLargeError,
    StateKey,
    StateTable,
    StoredState,
    VersionConflictError,
)
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState

if TYPE_CHECKING:
    from lambdas.evaluate_rule.continuation import Continuations
    from lambdas.evaluate_rule.result_file import ResultFiles
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from rule_runtime.engine.rule import Rule
    from rule_runtime.trial.step_index import StepFile

__all__ = ["Announcer", "ContendedStateError", "RunEvaluation", "RunFiles"]

_MAX_ATTEMPTS: Final = 8
_LONGEST_PAUSE_S: Final = 2.0
_UNCOUNTED_S: Final = 300.0
"""By how much a state's time of the last output may be behind, in seconds."""
_FIRST_PAUSE_S: Final = 0.05


class ContendedStateError(Exception):
    """Other evaluators wrote the state first, each time; the records must be delivered again."""


class Announcer(Protocol):
    """Reports the status of an evaluation."""

    def announce(self, registration: Registration, stored: StoredState) -> None:
        """Publish the status of `stored`; raises when that failed."""
        ...


@dataclass(frozen=True)
class RunFiles:
    """What is new of a run.

    Attributes:
        store: The trial's root.
        registration: The job, with the run in hand.
        files: The run's index files that events name.
        has_ended: True when the run's end marker was seen.
        last_sequences: Number of the last index file of each worker that the end marker names.
        created_at: When the newest of the objects was created, seconds since the epoch.
        wake: What calls for a look at the run, beside its files.
        is_restart: True if the run is evaluated from its beginning again.
        may_go_on: Whether there is time for more.
    """

    store: Store
    registration: Registration
    files: Sequence[StepFile]
    has_ended: bool = False
    last_sequences: Mapping[str, int] = field(default_factory=dict)
    created_at: float | None = None
    wake: Wake | None = None
    is_restart: bool = False
    may_go_on: Callable[[], bool] = lambda: True

    @property
    def reason(self) -> WakeReason | None:
        """Why the run must be looked at without any new file; None if there are such."""
        return None if self.wake is None or self.files else self.wake.reason

    def heard_of(self, stored: StoredState) -> StoredState:
        """Return what is stored, with the time of files that it does not count.

        Those of a run whose parameters make no rule are not taken in, nor those for which there is
        no room while a worker is waited for; it is not silent all the same.
        """
        if not self.files or self.created_at is None or stored.state.ended:
            return stored
        if self.created_at <= stored.updated_at_ms / 1000 + _UNCOUNTED_S:
            return stored
        return replace(stored, updated_at_ms=round(self.created_at * 1000))

    def continuation(self, left: StoredState) -> Wake:
        """Return the call to go on where this one ends.

        Args:
            left: The state that this one leaves.
        """
        hop = 0 if self.wake is None else self.wake.hop
        key = left.key
        reason, version = WakeReason.CONTINUE, left.version
        return Wake(key.root_uri, key.run_id, reason, hop, version=version, rule=key.rule)


@dataclass(frozen=True)
class _Advance:
    """What became of a state.

    Attributes:
        stored: The state as committed.
        has_more: Whether there is more to be done that needs no further file.
        has_advanced: Whether the state is another one than before.
    """

    stored: StoredState
    has_more: bool = False
    has_advanced: bool = False


@dataclass(frozen=True)
class RunEvaluation:
    """Evaluates rules over runs.

    Attributes:
        make_rule: Makes a rule, by its configuration name, as a job wants it.
        states: The evaluation states.
        announcer: Publishes status events.
        results: Writes verdicts as files.
        continuations: Passes on what one call has no time for.
        telemetry: Logs and metrics.
        patience: How long a step waits for a worker.
        clock: Seconds since the epoch.
        sleep: Waits for a number of seconds.
        jitter: Spreads evaluators that met.
    """

    make_rule: Callable[[str, Registration], Rule]
    states: StateTable
    announcer: Announcer
    results: ResultFiles
    continuations: Continuations
    telemetry: Telemetry
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    jitter: random.Random = field(default_factory=random.Random)

    def look_at(self, rule_name: str, run: RunFiles) -> None:
        """Bring a rule's state for a run up to date, and announce what changed.

        When it returns, the committed state covers the files, anyone who wrote it, or a later call
        will go on with those that it does not cover yet.

        Args:
            rule_name: Name under which the rule is configured.
            run: What is new of the run.

        Raises:
            ContendedStateError: The state could not be written for other evaluators' writing.
            OutOfTimeError: Nothing could be done in the time that was left.
            StorageError: Tensors could not be read.
            Exception: The table, the bus or the queue failed; the same call may be made again.
        """
        key = StateKey(run.registration.root_uri, run.registration.run_id, rule_name)
        try:
            stored = self.states.load(key)
        except MemoryLostError as error:
            self.telemetry.count("MemoriesLost")
            self.telemetry.error("the run is evaluated from its beginning", exception=error)
            stored, run = error.restart, replace(run, is_restart=True)
        if not self._is_due(run, stored):
            return
        for attempt in range(_MAX_ATTEMPTS):
            try:
                result = self._advance(run, key, stored)
            except VersionConflictError as conflict:  # noqa: PERF203 - the loop is there for it
                stored = conflict.current
                self.telemetry.count("VersionConflicts")
                longest = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
                self.sleep(self.jitter.uniform(0, longest))
            else:
                self._tell(run, result)
                return
        raise ContendedStateError(f"{_MAX_ATTEMPTS} attempts to write {key.run} {key.rule} failed")

    def _is_due(self, run: RunFiles, stored: StoredState | None) -> bool:
        if run.has_ended or run.wake is None or run.reason is None:
            return True
        if stored is None:
            self.telemetry.info("no stored state of the run that should be evaluated again")
            return False
        if run.reason is not WakeReason.CONTINUE:
            return True
        # Another call has written since: it has done what was left, or passes it on itself.
        return run.wake.version in (0, stored.version)

    def _advance(self, run: RunFiles, key: StateKey, stored: StoredState | None) -> _Advance:
        """Return the state as committed, covering the run's files as far as there was time."""
        if stored is None:
            initial = EvaluationState.initial()
            stored = self.states.save(StoredState(key, initial), initial)
            stored = self._announce(run, stored)
        before = stored.state
        if before.is_given_up:
            return _Advance(stored)  # given up; only a new run is judged again
        quiet = QuietRun.of(run.wake if run.reason else None, stored, self.clock())
        reconciler, after = self._advanced(run, stored, quiet)
        has_more = reconciler is not None and reconciler.has_more
        heard = run.heard_of(stored)
        if after == before and heard == stored:
            return _Advance(stored, has_more)
        note = stored.note or (quiet.note if after.ended or after.progress.finishing else "")
        saved = self._save(replace(heard, note=note), after)
        judged = after.counts.evaluated - before.counts.evaluated
        self.telemetry.count("StepsEvaluated", max(judged, 0))
        return _Advance(saved, has_more, has_advanced=after != before)

    def _advanced(
        self, run: RunFiles, stored: StoredState, quiet: QuietRun
    ) -> tuple[Reconciler | None, EvaluationState]:
        try:
            rule = self.make_rule(stored.key.rule, run.registration)
        except RuleConfigurationError as error:
            problem, name = str(error)[:MAX_TEXT], stored.key.rule
            self.telemetry.warning("the parameters make no rule", rule_name=name, problem=problem)
            state = blocked(stored.state, str(error))
            return None, replace(state, ended=True) if quiet.is_over else state
        reconciler = Reconciler(
            run.store, rule, run.registration.run_id or None, patience=self.patience
        )
        after = reconciler.advance(
            unblocked(stored.state),
            run.files,
            ended=run.has_ended or quiet.is_over,
            last_sequences=run.last_sequences,
            now=self.clock(),
            may_go_on=run.may_go_on,
            look_again=run.reason is WakeReason.SWEEP or run.is_restart,
        )
        return reconciler, quiet.judged(rule, after)

    def _tell(self, run: RunFiles, result: _Advance) -> None:
        """Announce what changed, and pass on what is left."""
        stored = result.stored
        if result.has_advanced and stored.state.ended and stored.state.is_announced:
            # Findings after the first change the evidence, not the status.
            self.results.write(run.registration, stored)
        stored = self._announce(run, stored)
        if run.reason is WakeReason.SWEEP and stored.state.ended:
            self.states.mark_announced(stored)  # or it would be swept again and again
        if result.has_more:
            self.continuations.pass_on(run.continuation(stored), has_advanced=result.has_advanced)

    def _save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        try:
            return self.states.save(stored, state)
        except MemoryTooLargeError as error:
            self.telemetry.error("the rule is given up for this run", exception=error)
            self.telemetry.count("EvaluationsGivenUp")
            return self.states.save(stored, given_up(state, str(error)))

    def _announce(self, run: RunFiles, stored: StoredState) -> StoredState:
        if stored.state.is_announced:
            return stored
        self.announcer.announce(run.registration, stored)
        status = stored.state.status
        if status.is_final:
            self.telemetry.count("Verdicts")
            self.telemetry.count(f"Verdicts{status.value}")
            if run.created_at is not None:
                latency_s = max(self.clock() - run.created_at, 0.0)
                self.telemetry.milliseconds("VerdictLatency", latency_s * 1000)
        self.telemetry.info("status announced", rule_name=stored.key.rule, status=status.value)
        if status.is_final:
            self.results.write(run.registration, stored)
        return self.states.mark_announced(stored)
