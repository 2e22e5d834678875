"""Events with a rule's status, in the format of SageMaker's own events (frozen: see the tests)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import STATUS_DETAIL_TYPE, STATUS_SOURCE
from rule_runtime.engine.outcome import MAX_STATUS_DETAILS_LENGTH, status_details
from rule_runtime.engine.result_file import RuleResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_events import EventBridgeClient

    from lambdas.shared.registration import Registration
    from lambdas.shared.state_table import StoredState
    from rule_runtime.engine.outcome import Evidence

__all__ = ["AnnouncementError", "EventBridgeAnnouncer", "status_detail"]

_MAX_TEXT: Final = 2048
"""Maximum length of the evidence in an event, in characters (names come from files)."""


class AnnouncementError(Exception):
    """The bus did not accept a status event; it must be announced again."""


class EventBridgeAnnouncer:
    """Publishes status events.

    Args:
        client: Returns the EventBridge client; called for the first event, which most calls do not
            send.
        bus_name: Name of the bus.
    """

    def __init__(self, client: Callable[[], EventBridgeClient], bus_name: str) -> None:
        self._client = client
        self._bus_name = bus_name

    def announce(self, registration: Registration, stored: StoredState) -> None:
        """Publish the status of `stored`.

        Raises:
            AnnouncementError: The bus rejected the event.
        """
        answer = self._client().put_events(
            Entries=[
                {
                    "Source": STATUS_SOURCE,
                    "DetailType": STATUS_DETAIL_TYPE,
                    "Detail": json.dumps(status_detail(registration, stored), allow_nan=False),
                    "EventBusName": self._bus_name,
                    "Resources": [arn] if (arn := registration.training_job_arn) else [],
                }
            ]
        )
        if answer["FailedEntryCount"]:
            entry = answer["Entries"][0]
            raise AnnouncementError(
                f"the bus {self._bus_name} refused the status of {stored.key.rule} for "
                f"{stored.key.run}: {entry.get('ErrorCode')}: {entry.get('ErrorMessage')}"
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
        evidence=None if state.evidence is None else _bounded(state.evidence),
    ).to_json()


def _details(stored: StoredState) -> str:
    details = status_details(stored.key.rule, stored.state)
    if not (stored.note and stored.state.ended):
        return details
    note = f"; {stored.note}"[:MAX_STATUS_DETAILS_LENGTH]
    return details[: MAX_STATUS_DETAILS_LENGTH - len(note)] + note


def _bounded(evidence: Evidence) -> dict[str, Any]:
    return {
        name: value[:_MAX_TEXT] if isinstance(value, str) else value
        for name, value in evidence.to_json().items()
    }
