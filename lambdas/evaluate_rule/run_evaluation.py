"""Evaluates a group of rules on one run of a job: advances the states, saves them, reports changes.

The order matters. First the states are written with their transitions counted, then events are
sent, then the transitions are marked as announced. After a crash in between, the counters differ,
and the next call announces again: no verdict is missed, but one may be sent twice.

A call without enough time saves its progress first, and then lets a later call continue.

Four errors prevent the evaluation of a rule, and end as Error with a reason. If the parameters are
invalid, all progress is kept, and every check tries again, because the deployment may be corrected.
If the rule itself fails, its state is too large for the table, or it ended the process twice, the
run is given up permanently. A verdict is never reverted. Other rules of the group continue.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from hook_layer.storage.base import Store
from lambdas.evaluate_rule.blocked_states import MAX_TEXT, blocked, given_up, unblocked
from lambdas.evaluate_rule.continuation import OutOfTimeError
from lambdas.evaluate_rule.job_limits import BATCH_NOTE
from lambdas.evaluate_rule.quiet_run import QuietRun
from lambdas.evaluate_rule.rules import RuleConfigurationError
from lambdas.evaluate_rule.time_budget import TimeBudget
from lambdas.shared.state_groups import GroupConflictError, GroupTable, StoredGroup
from lambdas.shared.state_item import MemoryTooLargeError, StateKey, StoredState
from lambdas.shared.wake import Wake, WakeReason
from rule_runtime.configuration.requested_rules import is_rule_name
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.shared_reads import SharedReads
from rule_runtime.trial.step_view import StepReader

if TYPE_CHECKING:
    from lambdas.evaluate_rule.attempts import RuleAttempts
    from lambdas.evaluate_rule.continuation import Continuations
    from lambdas.evaluate_rule.result_file import ResultFiles
    from lambdas.evaluate_rule.rules import RuleSource
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from rule_runtime.trial.step_index import StepFile

__all__ = ["Announcer", "ContendedStateError", "RunEvaluation", "RunFiles"]

_MAX_ATTEMPTS: Final = 8
_LONGEST_PAUSE_S: Final = 2.0
_UNCOUNTED_S: Final = 300.0
"""Maximum delay of a state's time of the last output, seconds."""
_FIRST_PAUSE_S: Final = 0.05
_MAX_DEATHS: Final = 2
"""Ends of the process during a rule after which it is left out; one may have another cause."""
_SHARED_BYTES: Final = 16 << 20
"""Size of the parsed files, and of other objects, that the rules of a group share."""


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
        budget: The time budget.
        has_ended: True if the run's end marker was read.
        last_sequences: Number of each worker's last index file in the end marker.
        created_at: Creation time of the newest object, seconds since the epoch.
        wake: The wake for the run, besides its files.
        attempts: Attempts at the rules, which are recorded; None for a first delivery.
        is_limited: Whether the job has more files than are evaluated as they come.
    """

    store: Store
    registration: Registration
    files: Sequence[StepFile]
    budget: TimeBudget
    has_ended: bool = False
    last_sequences: Mapping[str, int] = field(default_factory=dict)
    created_at: float | None = None
    wake: Wake | None = None
    attempts: RuleAttempts | None = None
    is_limited: bool = False

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

    def continuation(self, left: StoredGroup) -> Wake:
        """Return the wake that continues this call.

        Args:
            left: The states after this call.
        """
        hop = 0 if self.wake is None else self.wake.hop
        key, reason = left.key, WakeReason.CONTINUE
        rule = key.rule if is_rule_name(key.rule) else ""
        return Wake(key.root_uri, key.run_id, reason, hop, version=left.version, rule=rule)

    def attempt(self, rule: str) -> AbstractContextManager[None]:
        """Record an attempt at a rule while it is evaluated."""
        return nullcontext() if self.attempts is None else self.attempts.of_rule(rule)

    def num_deaths(self, rule: str) -> int:
        """Return how often the process ended while it evaluated a rule."""
        return 0 if self.attempts is None else self.attempts.num_deaths(rule)


@dataclass
class _Advance:
    """Result of advancing a group.

    Attributes:
        group: The committed states.
        advanced: Rules whose state has changed.
        has_more: Whether work remains that needs no further file.
        has_time: Whether every rule had a turn.
    """

    group: StoredGroup
    advanced: Collection[str] = ()
    has_more: bool = False
    has_time: bool = True


@dataclass(frozen=True)
class RunEvaluation:
    """Evaluates rules over runs.

    Attributes:
        rule_source: Which rules are evaluated, and how they are created.
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

    rule_source: RuleSource
    states: GroupTable
    announcer: Announcer
    results: ResultFiles
    continuations: Continuations
    telemetry: Telemetry
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    jitter: random.Random = field(default_factory=random.Random)

    def look_at(self, name: str, rules: Iterable[str], run: RunFiles) -> None:
        """Update the states of a group of rules for a run, and announce changes.

        Afterwards, the committed states cover the files, no matter which call wrote them, or a
        later call continues with the remaining files.

        Args:
            name: Name of the group: its rule's configuration name, or the evaluator's.
            rules: Configuration names of the rules that are due.
            run: The new files of the run.

        Raises:
            ContendedStateError: Other evaluators wrote the states in every attempt.
            OutOfTimeError: There was no time for any progress, or for all rules.
            StorageError: Tensors could not be read.
            Exception: The table, the bus or the queue failed; the call may be repeated.
        """
        key = StateKey(run.registration.root_uri, run.registration.run_id, name)
        group = self.states.load(key, rules)
        lost = self._with_lost({}, group)
        if not self._is_due(run, group):
            return
        for attempt in range(_MAX_ATTEMPTS):
            try:
                result = self._advance(run, group, rules, lost)
            except GroupConflictError as conflict:  # noqa: PERF203 - the loop is there for it
                group = conflict.current
                if not group.states.keys() >= set(rules):  # they may be in other items
                    group = self.states.load(key, rules)
                lost = self._with_lost(lost, group)
                self.telemetry.count("VersionConflicts")
                longest = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
                self.sleep(self.jitter.uniform(0, longest))
            else:
                self._tell(run, result)
                return
        raise ContendedStateError(f"{_MAX_ATTEMPTS} attempts to write {key.run} {key.rule} failed")

    def _with_lost(self, lost: Mapping[str, str], group: StoredGroup) -> Mapping[str, str]:
        """Return the rules with lost memories so far and in a group; report the new ones."""
        for rule in group.lost.keys() - lost.keys():
            self.telemetry.count("MemoriesLost")
            problem = group.lost[rule]
            self.telemetry.error("the run is evaluated from its beginning", problem=problem)
        return {**lost, **group.lost}

    def _is_due(self, run: RunFiles, group: StoredGroup) -> bool:
        if run.has_ended or run.wake is None or run.reason is None:
            return True
        if not group.states:
            self.telemetry.info("no stored state of the run that should be evaluated again")
            return False
        if run.reason is not WakeReason.CONTINUE or not group.version:
            return True
        # A newer version means that another call did the remaining work, or passes it on.
        return run.wake.version in (0, group.version)

    def _advance(
        self, run: RunFiles, group: StoredGroup, rules: Iterable[str], lost: Collection[str]
    ) -> _Advance:
        """Return the committed states, which cover the run's files as far as time allowed."""
        group = self._with_new(run, group, rules)
        unended = [
            rule
            for rule, stored in group.states.items()
            if not stored.state.ended and self.rule_source.includes(rule, run.registration)
        ]
        due = list(dict.fromkeys([*rules, *unended]))
        store: Store = run.store if len(due) == 1 else SharedReads(run.store, _SHARED_BYTES)
        reader, changes, result = StepReader(store), {}, _Advance(group)
        for number, rule in enumerate(due):
            if number and not run.budget.may_go_on():
                result.has_time = False
                break
            stored = group.states[rule]
            if stored.is_damaged:
                self._count_failure(rule, stored.state.blocked_by or "")
                changes[rule] = stored, stored.state
                continue
            if stored.state.is_given_up:
                continue  # only a new run is evaluated again
            turn = replace(run, budget=run.budget.share(len(due) - number))
            quiet = QuietRun.of(run.wake if run.reason else None, stored, self.clock())
            has_more, after = self._advanced(turn, stored, quiet, reader, is_lost=rule in lost)
            result.has_more |= has_more
            heard = run.with_reported(stored)
            if after != stored.state or heard != stored:
                is_over = after.ended or after.progress.finishing
                note = stored.note or (quiet.note if is_over else "")
                note = note or (BATCH_NOTE if run.is_limited else "")
                changes[rule] = replace(heard, note=note), after
        if changes:
            result.group = self._save(group, changes)
            result.advanced = {r for r, (stored, after) in changes.items() if after != stored.state}
            self._count(changes)
        return result

    def _with_new(self, run: RunFiles, group: StoredGroup, rules: Iterable[str]) -> StoredGroup:
        """Return the group with a state of each rule; new ones are announced."""
        initial = EvaluationState.initial()
        new = {
            rule: (StoredState(replace(group.key, rule=rule), initial), initial)
            for rule in rules
            if rule not in group.states
        }
        if not (new or group.adopted):
            return group
        group = self._announce(run, self.states.save(group, new))
        if not group.states.keys() >= set(rules):  # another evaluator took one
            raise GroupConflictError(group)
        return group

    def _advanced(
        self,
        run: RunFiles,
        stored: StoredState,
        quiet: QuietRun,
        reader: StepReader,
        *,
        is_lost: bool,
    ) -> tuple[bool, EvaluationState]:
        """Return whether work remains for a rule, and its next state."""
        name = stored.key.rule
        if (num_deaths := run.num_deaths(name)) >= _MAX_DEATHS:
            reason = (
                f"it ended the process of its evaluator {num_deaths} times, by memory, time or a "
                "crash: narrow its tensors, or raise stepwatch:evaluator_memory_mb"
            )
            self._count_failure(name, reason)
            return False, given_up(stored.state, reason)
        try:
            rule = self.rule_source.rule(name, run.registration)
        except RuleConfigurationError as error:
            problem = str(error)[:MAX_TEXT]
            self.telemetry.warning("the parameters make no rule", rule_name=name, problem=problem)
            state = blocked(stored.state, str(error))
            return False, replace(state, ended=True) if quiet.is_over else state
        reconciler = Reconciler(
            reader, rule, run.registration.run_id or None, patience=self.patience
        )
        with run.attempt(name):
            after = reconciler.advance(
                unblocked(stored.state),
                run.files,
                ended=run.has_ended or quiet.is_over,
                last_sequences=run.last_sequences,
                now=self.clock(),
                may_go_on=run.budget.may_go_on,
                check_again=run.reason is WakeReason.SWEEP or is_lost,
            )
            return reconciler.has_more, quiet.judged(rule, after)

    def _count(self, changes: Mapping[str, tuple[StoredState, EvaluationState]]) -> None:
        steps = [
            after.counts.evaluated - stored.state.counts.evaluated
            for stored, after in changes.values()
        ]
        self.telemetry.count("StepsEvaluated", max(0, *steps))
        for rule, (stored, after) in changes.items():
            if after.counts.failure and not stored.state.counts.failure:
                self._count_failure(rule, after.counts.failure)

    def _count_failure(self, rule: str, reason: str) -> None:
        self.telemetry.count("RulesFailed")
        self.telemetry.warning("a rule failed", rule_name=rule, problem=reason[:MAX_TEXT])

    def _tell(self, run: RunFiles, result: _Advance) -> None:
        """Announce changes, and pass on remaining work."""
        for rule in result.advanced:
            stored = result.group.states[rule]
            if stored.state.ended and stored.state.is_announced:
                # Later findings change the evidence, not the status.
                self.results.write(run.registration, stored)
        group = self._announce(run, result.group)
        states = [stored.state for stored in group.states.values()]
        if run.reason is WakeReason.SWEEP and all(state.ended for state in states):
            self.states.mark_announced(group, ())  # otherwise every sweep would wake it
        if result.has_more:
            has_advanced = bool(result.advanced)
            self.continuations.pass_on(run.continuation(group), has_advanced=has_advanced)
        if not result.has_time:
            raise OutOfTimeError(f"no time for all rules of {run.registration.root_uri}")

    def _save(
        self, group: StoredGroup, changes: dict[str, tuple[StoredState, EvaluationState]]
    ) -> StoredGroup:
        """Save states; a rule whose state is too large is given up."""
        while True:
            try:
                return self.states.save(group, changes)
            except MemoryTooLargeError as error:  # noqa: PERF203 - a large one is rare
                current = group.states[error.rule]
                stored, state = changes.get(error.rule) or (current, current.state)
                if state.is_given_up:
                    raise
                self.telemetry.error("the rule is given up for this run", exception=error)
                self.telemetry.count("EvaluationsGivenUp")
                changes[error.rule] = stored, given_up(state, str(error))

    def _announce(self, run: RunFiles, group: StoredGroup) -> StoredGroup:
        announced: list[str] = []
        try:
            for rule, stored in group.states.items():
                if not stored.state.is_announced:
                    self._announce_one(run, stored)
                    announced.append(rule)
        finally:
            if announced:
                group = self.states.mark_announced(group, announced)
        return group

    def _announce_one(self, run: RunFiles, stored: StoredState) -> None:
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
