"""One look at one run of a job: advance the state, save it, tell what changed.

The order matters. The state is written first, with its transition counted; then the event goes out;
then the transition is noted as announced. A crash in between leaves the two counters apart, and
whoever sees them so announces again: nobody misses a verdict, and some see one twice.

Three things can be in the way of an evaluation, and all are told as Error with their reason. When
the parameters make no rule, all that was learned is kept, and every look tries again: somebody may
have corrected the deployment. When the rule itself fails, or the state does not fit into the table,
the run is given up for good. A verdict never turns back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from hook_layer.storage.base import Store
from lambdas.evaluate_rule.rules import RuleConfigurationError, RuleFactory
from lambdas.shared.state_table import (
    MemoryTooLargeError,
    StateKey,
    StateTable,
    StoredState,
    VersionConflictError,
)
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.state import EvaluationState, Progress

if TYPE_CHECKING:
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from rule_runtime.evaluation.outcome import Evidence
    from rule_runtime.trial.step_index import StepFile

__all__ = ["Announcer", "ContendedStateError", "RunEvaluation", "RunFiles"]

_MAX_ATTEMPTS: Final = 8
_LONGEST_PAUSE_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.05
_MAX_TEXT: Final = 1024
"""Characters of a text in a state that has to be small; status details have no more either."""


class ContendedStateError(Exception):
    """Other evaluators wrote the state first, each time; the records are to be delivered again."""


class Announcer(Protocol):
    """Tells the status of an evaluation to whoever wants to know."""

    def announce(self, registration: Registration, stored: StoredState) -> None:
        """Publish the status of `stored`; raises when that failed."""
        ...


@dataclass(frozen=True)
class RunFiles:
    """What is new of a run.

    Attributes:
        store: The trial's root.
        registration: The job, with the run in hand.
        files: The run's index files that events told of.
        has_ended: True when the run's end marker was seen.
        last_sequences: Number of the last index file of each worker that the end marker names.
        created_at: When the newest of the objects was created, seconds since the epoch.
    """

    store: Store
    registration: Registration
    files: Sequence[StepFile]
    has_ended: bool = False
    last_sequences: Mapping[str, int] = field(default_factory=dict)
    created_at: float | None = None


@dataclass(frozen=True)
class RunEvaluation:
    """Evaluates one rule over runs.

    Attributes:
        rule_name: Name under which the rule is configured.
        make_rule: Makes the rule with a job's parameters.
        states: The evaluation states.
        announcer: Publishes status events.
        telemetry: Logs and metrics.
        clock: Seconds since the epoch.
        sleep: Waits for a number of seconds.
        jitter: Spreads evaluators that met.
    """

    rule_name: str
    make_rule: RuleFactory
    states: StateTable
    announcer: Announcer
    telemetry: Telemetry
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    jitter: random.Random = field(default_factory=random.Random)

    def look_at(self, run: RunFiles) -> None:
        """Bring the rule's state for a run up to date, and announce what changed.

        When it returns, the committed state covers the files, whoever wrote it.

        Raises:
            ContendedStateError: The state could not be written for other evaluators' writing.
            StorageError: Tensors could not be read.
            Exception: The table or the bus failed; the same call may be made again.
        """
        key = StateKey(run.registration.root_uri, run.registration.run_id, self.rule_name)
        stored = self.states.load(key)
        for attempt in range(_MAX_ATTEMPTS):
            try:
                stored = self._advance(run, key, stored)
            except VersionConflictError as conflict:  # noqa: PERF203 - the loop is there for it
                stored = conflict.current
                self.telemetry.count("VersionConflicts")
                longest = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
                self.sleep(self.jitter.uniform(0, longest))
            else:
                self._announce(run, stored)
                return
        raise ContendedStateError(f"{_MAX_ATTEMPTS} attempts to write {key.run} {key.rule} failed")

    def _advance(self, run: RunFiles, key: StateKey, stored: StoredState | None) -> StoredState:
        """Return the state as committed, covering the run's files."""
        if stored is None:
            initial = EvaluationState.initial()
            stored = self.states.save(StoredState(key, initial), initial)
            stored = self._announce(run, stored)
        before = stored.state
        if before.is_given_up:
            return stored  # given up; only a new run is judged again
        after = self._advanced(run, before)
        if after != before:
            stored = self._save(stored, after)
            judged = after.counts.evaluated - before.counts.evaluated
            self.telemetry.count("StepsEvaluated", max(judged, 0))
        return stored

    def _advanced(self, run: RunFiles, state: EvaluationState) -> EvaluationState:
        try:
            rule = self.make_rule(run.registration.parameters_of(self.rule_name))
        except RuleConfigurationError as error:
            self.telemetry.warning("the parameters make no rule", problem=str(error)[:_MAX_TEXT])
            return _blocked(state, str(error))
        reconciler = Reconciler(run.store, rule, run.registration.run_id or None)
        return reconciler.advance(
            _unblocked(state),
            run.files,
            ended=run.has_ended,
            last_sequences=run.last_sequences,
        )

    def _save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        try:
            return self.states.save(stored, state)
        except MemoryTooLargeError as error:
            self.telemetry.error("the rule is given up for this run", exception=error)
            self.telemetry.count("EvaluationsGivenUp")
            return self.states.save(stored, _given_up(state, str(error)))

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
        self.telemetry.info("status announced", status=status.value)
        return self.states.mark_announced(stored)


def _blocked(state: EvaluationState, reason: str) -> EvaluationState:
    """Return the state of an evaluation that cannot go on for now; a verdict stays as it is."""
    if state.status.is_final and not state.blocked_by:
        return state
    return replace(state, blocked_by=reason[:_MAX_TEXT]).with_status(RuleStatus.ERROR)


def _unblocked(state: EvaluationState) -> EvaluationState:
    if not state.blocked_by:
        return state
    return replace(state, blocked_by="").with_status(RuleStatus.IN_PROGRESS)


def _given_up(state: EvaluationState, reason: str) -> EvaluationState:
    """Return the state of an evaluation that can never go on, small enough for any table."""
    counts = replace(
        state.counts,
        last_reason=state.counts.last_reason[:_MAX_TEXT],
        last_problem=state.counts.last_problem[:_MAX_TEXT],
        failure=state.counts.failure[:_MAX_TEXT],
    )
    emptied = replace(
        state,
        progress=Progress(),
        memory={},
        evidence=None if state.evidence is None else _shortened(state.evidence),
        counts=counts,
        ended=True,
        blocked_by=reason[:_MAX_TEXT],
    )
    return emptied if state.status.is_final else emptied.with_status(RuleStatus.ERROR)


def _shortened(evidence: Evidence) -> Evidence:
    """Return the evidence with texts that fit into an item; names come from files."""
    texts: dict[str, Any] = {
        item.name: value[:_MAX_TEXT]
        for item in fields(evidence)
        if isinstance(value := getattr(evidence, item.name), str)
    }
    return replace(evidence, **texts)
