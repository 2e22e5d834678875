"""Publishes what an event has changed: status events, verdicts as files, and remaining work.

Events and files have the format of SageMaker's own events (frozen: see the tests).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hook_layer.storage.base import StorageError
from lambdas.contracts.events import STATUS_DETAIL_TYPE
from lambdas.evaluate_rule.continuation import OutOfTimeError
from lambdas.shared.event_bus import bounded
from lambdas.shared.wake import WakeReason
from rule_runtime.engine.outcome import MAX_STATUS_DETAILS_LENGTH, status_details
from rule_runtime.engine.result_file import RuleResult, result_place

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.evaluate_rule.continuation import Continuations
    from lambdas.evaluate_rule.job_event import RunEvent
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from lambdas.shared.state_item import StateKey, StoredState
    from lambdas.shared.states import GroupTable

__all__ = ["Bus", "Publication", "status_detail"]


class Bus(Protocol):
    """Where events are published."""

    def publish(
        self, detail_type: str, detail: Mapping[str, Any], *, arn: str | None = None, subject: str
    ) -> None:
        """Publish an event; raise an error on failure."""
        ...


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Publishes the changes of an event.

    Attributes:
        bus: The bus of status events.
        open_store: Returns the store at a folder.
        continuations: Passes on work that one call has no time for.
        telemetry: Logs and metrics.
        clock: Seconds since the epoch.
    """

    bus: Bus
    open_store: Callable[[str], Store]
    continuations: Continuations
    telemetry: Telemetry
    clock: Callable[[], float] = time.time

    def publish(self, event: RunEvent, states: GroupTable) -> None:
        """Announce changes, and pass on remaining work.

        Args:
            event: The changes.
            states: The evaluation states, which count announced changes.

        Raises:
            OutOfTimeError: There was no time for any progress, or for all rules.
            Exception: The table, the bus or the queue failed; the call may be repeated.
        """
        for rule in event.advanced:
            stored = event.group.states[rule]
            if stored.state.ended and stored.state.is_announced:
                # Later findings change the evidence, not the status.
                self._write_result(stored.key, status_detail(event.registration, stored))
        self.announce(event, states)
        stored_states = event.group.states.values()
        if event.reason is WakeReason.SWEEP and all(each.state.ended for each in stored_states):
            states.mark_announced(event.group, ())  # otherwise every sweep would wake it
        if event.has_more:
            has_advanced = bool(event.advanced)
            self.continuations.pass_on(event.continuation(), has_advanced=has_advanced)
        if not event.has_time:
            raise OutOfTimeError(f"no time for all rules of {event.registration.root_uri}")

    def announce(self, event: RunEvent, states: GroupTable) -> None:
        """Publish the statuses that were not announced yet, and record that."""
        announced: list[str] = []
        try:
            for rule, stored in event.group.states.items():
                if not stored.state.is_announced:
                    self._announce_one(event, stored)
                    announced.append(rule)
        finally:
            if announced:
                event.group = states.mark_announced(event.group, announced)

    def _announce_one(self, event: RunEvent, stored: StoredState) -> None:
        key, status = stored.key, stored.state.status
        detail = status_detail(event.registration, stored)
        self.bus.publish(
            STATUS_DETAIL_TYPE,
            detail,
            arn=event.registration.training_job_arn,
            subject=f"the status of {key.rule} for {key.run}",
        )
        is_verdict = status.is_final
        if is_verdict:
            self.telemetry.count("Verdicts")
            self.telemetry.count(f"Verdicts{status.value}")
            if event.created_at is not None:
                latency_s = max(self.clock() - event.created_at, 0.0)
                self.telemetry.milliseconds("VerdictLatency", latency_s * 1000)
        self.telemetry.info("status announced", rule_name=key.rule, status=status.value)
        if is_verdict:
            self._write_result(key, detail)

    def _write_result(self, key: StateKey, detail: Mapping[str, Any]) -> None:
        """Write `rule-output/<RuleConfigurationName>/status.json`, like the original's rule jobs.

        The event and the table are authoritative; a failed write has no further effect.
        """
        folder, name = result_place(key.root_uri, key.rule)
        content = json.dumps(detail, allow_nan=False, indent=2)
        try:
            self.open_store(folder).put(name, content.encode())
        except (StorageError, ValueError) as error:
            self.telemetry.count("ResultsNotWritten")
            self.telemetry.warning("the verdict is not written as a file", problem=str(error))


def status_detail(registration: Registration, stored: StoredState) -> dict[str, Any]:
    """Return the detail of the event that reports the status of `stored`.

    A repeated event for the same transition has the same status and time.

    Args:
        registration: The job; `stored` identifies the run.
        stored: The state after the transition.
    """
    state = stored.state
    return RuleResult(
        training_job_name=registration.training_job_name,
        run_id=stored.key.run_id,
        root_uri=stored.key.root_uri,
        rule=stored.key.rule,
        status=state.status,
        details=_details(stored),
        changed_at_ms=stored.status_changed_at_ms,
        training_job_arn=registration.training_job_arn,
        evidence=None if state.evidence is None else bounded(state.evidence.to_json()),
        advice=state.counts.advice or None,
    ).to_json()


def _details(stored: StoredState) -> str:
    details = status_details(stored.key.rule, stored.state)
    if not (stored.note and stored.state.ended):
        return details
    note = f"; {stored.note}"[:MAX_STATUS_DETAILS_LENGTH]
    return details[: MAX_STATUS_DETAILS_LENGTH - len(note)] + note
