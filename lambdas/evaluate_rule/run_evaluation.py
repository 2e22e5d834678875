"""Evaluates a group of rules on one run of a job: advances the states, saves and publishes them.

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
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hook_layer.storage.base import Store
from lambdas.evaluate_rule.job_limits import BATCH_NOTE
from lambdas.evaluate_rule.quiet_run import QuietRun
from lambdas.evaluate_rule.rules import RuleConfigurationError
from lambdas.shared.state_item import MemoryTooLargeError, StoredState
from lambdas.shared.states import GroupConflictError, GroupTable, StoredGroup
from lambdas.shared.wake import WakeReason
from rule_runtime.engine.outcome import MAX_STATUS_DETAILS_LENGTH as MAX_TEXT
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.shared_reads import SharedReads
from rule_runtime.trial.step_view import StepReader

if TYPE_CHECKING:
    from lambdas.evaluate_rule.job_event import RunEvent
    from lambdas.evaluate_rule.job_limits import TimeBudget
    from lambdas.evaluate_rule.publication import Publication
    from lambdas.evaluate_rule.rules import RuleSource
    from lambdas.shared.observability import Telemetry

__all__ = ["ContendedStateError", "RunEvaluation"]

_MAX_ATTEMPTS: Final = 8
_LONGEST_PAUSE_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.05
_UNCOUNTED_S: Final = 300.0
"""Maximum delay of a state's time of the last output, seconds."""
_MAX_DEATHS: Final = 2
"""Ends of the process during a rule after which it is left out; one may have another cause."""
_DEADLY: Final = (
    "it ended the process of its evaluator {} times, by memory, time or a crash: narrow its "
    "tensors, or raise stepwatch:evaluator_memory_mb"
)
_SHARED_BYTES: Final = 16 << 20
"""Size of the parsed files, and of other objects, that the rules of a group share."""


class ContendedStateError(Exception):
    """Other evaluators wrote the state first in every attempt; the records must come again."""


@dataclass(frozen=True)
class RunEvaluation:
    """Evaluates rules over runs.

    Attributes:
        rule_source: Which rules are evaluated, and how they are created.
        states: The evaluation states.
        publication: Publishes changes.
        telemetry: Logs and metrics.
        patience: How long a step waits for a worker.
        clock: Seconds since the epoch.
        sleep: Waits for a number of seconds.
        jitter: Spreads the retries of conflicting evaluators.
    """

    rule_source: RuleSource
    states: GroupTable
    publication: Publication
    telemetry: Telemetry
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    jitter: random.Random = field(default_factory=random.Random)

    def evaluate(self, event: RunEvent) -> None:
        """Update the states of a group of rules for a run, and announce changes.

        Afterwards, the committed states cover the files, no matter which call wrote them, or a
        later call continues with the remaining files.

        Raises:
            ContendedStateError: Other evaluators wrote the states in every attempt.
            OutOfTimeError: There was no time for any progress, or for all rules.
            StorageError: Tensors could not be read.
            Exception: The table, the bus or the queue failed; the call may be repeated.
        """
        key = event.group.key
        event.group = self.states.load(key, event.rules)
        self._add_lost(event)
        if not self._is_due(event):
            return
        for attempt in range(_MAX_ATTEMPTS):
            try:
                self._advance(event)
            except GroupConflictError as conflict:  # noqa: PERF203 - the loop is there for it
                event.group = conflict.current
                if not event.group.states.keys() >= set(event.rules):  # they may be in other items
                    event.group = self.states.load(key, event.rules)
                self._add_lost(event)
                self.telemetry.count("VersionConflicts")
                longest = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
                self.sleep(self.jitter.uniform(0, longest))
            else:
                self.publication.publish(event, self.states)
                return
        raise ContendedStateError(f"{_MAX_ATTEMPTS} attempts to write {key.run} {key.rule} failed")

    def _add_lost(self, event: RunEvent) -> None:
        """Add the rules whose memory the stored group lost; report the new ones."""
        for rule in event.group.lost.keys() - event.lost.keys():
            self.telemetry.count("MemoriesLost")
            problem = event.group.lost[rule]
            self.telemetry.error("the run is evaluated from its beginning", problem=problem)
        event.lost = {**event.lost, **event.group.lost}

    def _is_due(self, event: RunEvent) -> bool:
        if event.has_ended or event.wake is None or event.reason is None:
            return True
        if not event.group.states:
            self.telemetry.info("no stored state of the run that should be evaluated again")
            return False
        if event.reason is not WakeReason.CONTINUE or not event.group.version:
            return True
        # A newer version means that another call did the remaining work, or passes it on.
        return event.wake.version in (0, event.group.version)

    def _advance(self, event: RunEvent) -> None:
        """Commit states that cover the run's files as far as time allows."""
        self._add_new(event)
        event.advanced, event.has_more, event.has_time = (), False, True
        group, due = event.group, self._due(event)
        store: Store = event.store if len(due) == 1 else SharedReads(event.store, _SHARED_BYTES)
        reader, changes = StepReader(store), {}
        for number, rule in enumerate(due):
            if number and not event.budget.may_go_on():
                event.has_time = False
                break
            stored = group.states[rule]
            if stored.is_damaged:
                self._count_failure(rule, stored.state.blocked_by or "")
                changes[rule] = stored, stored.state
                continue
            if stored.state.is_given_up:
                continue  # only a new run is evaluated again
            budget = event.budget.share(len(due) - number)
            quiet = QuietRun()
            if event.reason is not None:
                quiet = QuietRun.of(event.wake, stored, self.clock())
            after = self._advanced(event, stored, quiet, reader, budget)
            reported = _with_reported(event, stored)
            if after != stored.state or reported != stored:
                is_over = after.ended or after.progress.finishing
                note = stored.note or (quiet.note if is_over else "")
                note = note or (BATCH_NOTE if event.job.is_limited else "")
                changes[rule] = replace(reported, note=note), after
        if changes:
            event.group = self._save(event, changes)
            event.advanced = {r for r, (was, after) in changes.items() if after != was.state}
            self._count(changes)

    def _due(self, event: RunEvent) -> list[str]:
        """Return the rules that are due, and others of the group whose run has not ended."""
        others = [
            rule
            for rule, stored in event.group.states.items()
            if rule not in event.rules
            and not stored.state.ended
            and self.rule_source.includes(rule, event.registration)
        ]
        return [*event.rules, *others]

    def _add_new(self, event: RunEvent) -> None:
        """Add a state of each rule without one, and announce it."""
        group = event.group
        missing = [rule for rule in event.rules if rule not in group.states]
        if not (missing or group.adopted):
            return
        initial = EvaluationState.initial()
        new = {
            rule: (StoredState(replace(group.key, rule=rule), initial), initial) for rule in missing
        }
        event.group = self.states.save(group, new)
        self.publication.announce(event, self.states)
        if not event.group.states.keys() >= set(event.rules):  # another evaluator took one
            raise GroupConflictError(event.group)

    def _advanced(
        self,
        event: RunEvent,
        stored: StoredState,
        quiet: QuietRun,
        reader: StepReader,
        budget: TimeBudget,
    ) -> EvaluationState:
        """Return the next state of a rule; record in the event whether work remains."""
        name, run, attempts = stored.key.rule, event.registration, event.job.attempts
        if attempts is not None and (num_deaths := attempts.num_deaths(name)) >= _MAX_DEATHS:
            reason = _DEADLY.format(num_deaths)
            self._count_failure(name, reason)
            return stored.state.given_up(reason)
        try:
            rule = self.rule_source.rule(name, run)
        except RuleConfigurationError as error:
            problem = str(error)[:MAX_TEXT]
            self.telemetry.warning("the parameters make no rule", rule_name=name, problem=problem)
            state = stored.state.blocked(str(error))
            return replace(state, ended=True) if quiet.is_over else state
        state = stored.state.unblocked()
        reconciler = Reconciler(reader, rule, run.run_id or None, patience=self.patience)
        with nullcontext() if attempts is None else attempts.of_rule(name):
            after = reconciler.advance(
                state,
                event.files,
                ended=event.has_ended or quiet.is_over,
                last_sequences=event.last_sequences,
                now=self.clock(),
                may_go_on=budget.may_go_on,
                check_again=event.reason is WakeReason.SWEEP or name in event.lost,
            )
            event.has_more |= reconciler.has_more
            return quiet.evaluated(rule, after) if quiet.silent_s else after

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

    def _save(
        self, event: RunEvent, changes: dict[str, tuple[StoredState, EvaluationState]]
    ) -> StoredGroup:
        """Save states; a rule whose state is too large is given up."""
        while True:
            try:
                return self.states.save(event.group, changes)
            except MemoryTooLargeError as error:  # noqa: PERF203 - a large one is rare
                current = event.group.states[error.rule]
                stored, state = changes.get(error.rule) or (current, current.state)
                if state.is_given_up:
                    raise
                self.telemetry.error("the rule is given up for this run", exception=error)
                self.telemetry.count("EvaluationsGivenUp")
                changes[error.rule] = stored, state.given_up(str(error))


def _with_reported(event: RunEvent, stored: StoredState) -> StoredState:
    """Return the stored state with the time of files that it has not processed.

    Files are not processed if the parameters are invalid, or if there is no room while a step waits
    for a worker; but the run is not silent.
    """
    if not event.files or event.created_at is None or stored.state.ended:
        return stored
    if event.created_at <= stored.updated_at_ms / 1000 + _UNCOUNTED_S:
        return stored
    return replace(stored, updated_at_ms=round(event.created_at * 1000))
