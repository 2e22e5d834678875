"""Evaluates one rule on one run of a job: advances the state, saves it, reports changes.

The order matters. First the state is written with its transition counted, then the event is sent,
then the transition is marked as announced. After a crash in between, the counters differ, and the
next call announces again: no verdict is missed, but one may be sent twice.

A call without enough time saves its progress first, and then lets a later call continue.

Three errors prevent an evaluation, and end as Error with a reason. If the parameters are invalid,
all progress is kept, and every check tries again, because the deployment may be corrected. If the
rule itself fails, or the state is too large for the table, the run is given up permanently. A
verdict is never reverted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from hook_layer.storage.base import Store
from lambdas.evaluate_rule.blocked_states import MAX_TEXT, blocked, given_up, unblocked
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
"""Maximum delay of a state's time of the last output, seconds."""
_FIRST_PAUSE_S: Final = 0.05


class ContendedStateError(Exception):
    """Other evaluators wrote the state first in every attempt; the records must come again."""


class Announcer(Protocol):
    """Reports the status of an evaluation."""

    def announce(self, registration: Registration, stored: StoredState) -> None:
        """Publish the status of `stored`; raise an error on failure."""
        ...


@dataclass(frozen=True)
class RunFiles:
    """New files of a run.

    Attributes:
        store: The trial's root.
        registration: The job, with the current run.
        files: The run's index files in events.
        has_ended: True if the run's end marker was read.
        last_sequences: Number of each worker's last index file in the end marker.
        created_at: Creation time of the newest object, seconds since the epoch.
        wake: The wake for the run, besides its files.
        is_restart: True if the evaluation starts over from the beginning of the run.
        may_go_on: Returns whether time is left.
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
        """Reason to evaluate the run without new files; None if there are new files."""
        return None if self.wake is None or self.files else self.wake.reason

    def with_reported(self, stored: StoredState) -> StoredState:
        """Return the stored state with the time of files that it has not processed.

        Files are not processed if the parameters are invalid, or if there is no room while a step
        waits for a worker; but the run is not silent.
        """
        if not self.files or self.created_at is None or stored.state.ended:
            return stored
        if self.created_at <= stored.updated_at_ms / 1000 + _UNCOUNTED_S:
            return stored
        return replace(stored, updated_at_ms=round(self.created_at * 1000))

    def continuation(self, left: StoredState) -> Wake:
        """Return the wake that continues this call.

        Args:
            left: The state after this call.
        """
        hop = 0 if self.wake is None else self.wake.hop
        key = left.key
        reason, version = WakeReason.CONTINUE, left.version
        return Wake(key.root_uri, key.run_id, reason, hop, version=version, rule=key.rule)


@dataclass(frozen=True)
class _Advance:
    """Result of advancing a state.

    Attributes:
        stored: The committed state.
        has_more: Whether work remains that needs no further file.
        has_advanced: Whether the state has changed.
    """

    stored: StoredState
    has_more: bool = False
    has_advanced: bool = False


@dataclass(frozen=True)
class RunEvaluation:
    """Evaluates rules over runs.

    Attributes:
        make_rule: Creates a rule with the job's parameters, by configuration name.
        states: The evaluation states.
        announcer: Publishes status events.
        results: Writes verdicts as files.
        continuations: Passes on work that one call has no time for.
        telemetry: Logs and metrics.
        patience: How long a step waits for a worker.
        clock: Seconds since the epoch.
        sleep: Waits for a number of seconds.
        jitter: Spreads the retries of conflicting evaluators.
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
        """Update a rule's state for a run, and announce changes.

        Afterwards, the committed state covers the files, no matter which call wrote it, or a later
        call continues with the remaining files.

        Args:
            rule_name: Configuration name of the rule.
            run: The new files of the run.

        Raises:
            ContendedStateError: Other evaluators wrote the state in every attempt.
            OutOfTimeError: There was no time for any progress.
            StorageError: Tensors could not be read.
            Exception: The table, the bus or the queue failed; the call may be repeated.
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
        # A newer version means that another call did the remaining work, or passes it on.
        return run.wake.version in (0, stored.version)

    def _advance(self, run: RunFiles, key: StateKey, stored: StoredState | None) -> _Advance:
        """Return the committed state, which covers the run's files as far as time allowed."""
        if stored is None:
            initial = EvaluationState.initial()
            stored = self.states.save(StoredState(key, initial), initial)
            stored = self._announce(run, stored)
        before = stored.state
        if stored.is_damaged:
            self.telemetry.warning(
                "the state of a rule is damaged", rule_name=key.rule, problem=before.blocked_by
            )
            return _Advance(self.states.save(stored, before))
        if before.is_given_up:
            return _Advance(stored)  # given up; only a new run is evaluated again
        quiet = QuietRun.of(run.wake if run.reason else None, stored, self.clock())
        reconciler, after = self._advanced(run, stored, quiet)
        has_more = reconciler is not None and reconciler.has_more
        heard = run.with_reported(stored)
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
            check_again=run.reason is WakeReason.SWEEP or run.is_restart,
        )
        return reconciler, quiet.judged(rule, after)

    def _tell(self, run: RunFiles, result: _Advance) -> None:
        """Announce changes, and pass on remaining work."""
        stored = result.stored
        if result.has_advanced and stored.state.ended and stored.state.is_announced:
            # Later findings change the evidence, not the status.
            self.results.write(run.registration, stored)
        stored = self._announce(run, stored)
        if run.reason is WakeReason.SWEEP and stored.state.ended:
            self.states.mark_announced(stored)  # otherwise every sweep would wake it
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
