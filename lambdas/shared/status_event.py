"""Events with a rule's status, in the format of SageMaker's own events (frozen: see the tests)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas.contracts.events import STATUS_DETAIL_TYPE
from lambdas.shared.event_bus import bounded
from rule_runtime.engine.outcome import MAX_STATUS_DETAILS_LENGTH, status_details
from rule_runtime.engine.result_file import RuleResult

if TYPE_CHECKING:
    from lambdas.shared.event_bus import EventBus
    from lambdas.shared.registration import Registration
    from lambdas.shared.state_table import StoredState

__all__ = ["EventBridgeAnnouncer", "status_detail"]


class EventBridgeAnnouncer:
    """Publishes status events.

    Args:
        bus: The bus.
    """

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus

    def announce(self, registration: Registration, stored: StoredState) -> None:
        """Publish the status of `stored`.

        Raises:
            AnnouncementError: The bus rejected the event.
        """
        self._bus.publish(
            STATUS_DETAIL_TYPE,
            status_detail(registration, stored),
            arn=registration.training_job_arn,
            subject=f"the status of {stored.key.rule} for {stored.key.run}",
        )


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
    ).to_json()


def _details(stored: StoredState) -> str:
    details = status_details(stored.key.rule, stored.state)
    if not (stored.note and stored.state.ended):
        return details
    note = f"; {stored.note}"[:MAX_STATUS_DETAILS_LENGTH]
    return details[: MAX_STATUS_DETAILS_LENGTH - len(note)] + note
