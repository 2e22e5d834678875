"""Checks stopped jobs until they have ended.

A job that continues gets a second request. If it still continues, an event and a metric report it,
because then a person must end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from hook_layer.storage.base import StorageError
from lambdas.contracts.events import (
    STATUS_SCHEMA_VERSION,
    STOP_CONFIRMATION_DETAIL_TYPE,
    STOP_OVERDUE_DETAIL_TYPE,
)
from lambdas.shared.event_bus import AnnouncementError
from lambdas.shared.stop_table import CONFIRMED, LATE
from lambdas.stop_job.job_stage import Life

if TYPE_CHECKING:
    from lambdas.shared.event_bus import EventBus
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.settings import StopJobSettings
    from lambdas.shared.stop_table import StopItem, StopTable
    from lambdas.stop_job.stopper import JobStopper

__all__ = [
    "StopConfirmation",
    "is_confirmation_due",
    "overdue_detail",
]

_MAX_REQUESTS: Final = 2
_ENDING_TIMES: Final = 6
"""Factor of the time limit for a job that reports that it is ending."""
_RESERVE_MS: Final = 15_000
"""Remaining time of an invocation below which no further job is checked, milliseconds."""


def is_confirmation_due(event: object) -> bool:
    """Return whether an event requests a check of stopped jobs, instead of a stop.

    The event names no job, so forging it has no other effect than the schedule.
    """
    return isinstance(event, dict) and event.get("detail-type") == STOP_CONFIRMATION_DETAIL_TYPE


@dataclass(frozen=True)
class StopConfirmation:
    """Checks jobs that were asked to stop.

    Attributes:
        settings: The function's settings.
        stops: The requests.
        stopper: Sends stop requests, and checks whether jobs have ended.
        bus: The bus for events about jobs that do not end.
        telemetry: Logs and metrics.
        clock: Seconds since the epoch.
    """

    settings: StopJobSettings
    stops: StopTable
    stopper: JobStopper
    bus: EventBus
    telemetry: Telemetry
    clock: Callable[[], float] = time.time

    def check(self, remaining_ms: Callable[[], float]) -> None:
        """Check every job with an unconfirmed stop, while there is time.

        Args:
            remaining_ms: Returns the remaining milliseconds.
        """
        for item in self.stops.pending():
            if remaining_ms() < _RESERVE_MS:
                return  # the next scheduled call continues with the oldest
            with self.telemetry.job(item.target.training_job_name, item.target.run_id):
                try:
                    self._check(item)
                except (ClientError, BotoCoreError, StorageError, AnnouncementError) as error:
                    # One job's error must not affect the others.
                    self.telemetry.count("StopChecksFailed")
                    self.telemetry.error("the stop could not be followed up", exception=error)

    def _check(self, item: StopItem) -> None:
        now, life = self.clock(), self._life(item)
        if life is Life.ENDED:
            if self.stops.close(item, CONFIRMED):
                self.telemetry.count("StopsConfirmed")
                self.telemetry.info("the job has ended")
        elif now - item.asked_at_ms / 1000 < self.settings.confirm_s:
            return
        elif life is Life.ENDING and now - item.requested_at_ms / 1000 < self._longest_end_s:
            return  # it has started to stop; saving a large model takes time
        elif item.num_requests < _MAX_REQUESTS:
            # Counted first: a job whose requests always fail must still become late.
            if self.stops.request_again(item):
                self.telemetry.warning("the job continues: it is asked to stop once more")
                self.stopper.stop(item.target, item.reason)
        else:
            self._tell(item)
            if self.stops.close(item, LATE):
                self.telemetry.count("StopsNotConfirmed")
                self.telemetry.error("the job continues although it was asked to stop twice")

    @property
    def _longest_end_s(self) -> float:
        return _ENDING_TIMES * self.settings.confirm_s

    def _life(self, item: StopItem) -> Life:
        try:
            return self.stopper.life(item.target)
        except (ClientError, BotoCoreError, StorageError) as error:
            self.telemetry.count("StopChecksFailed")
            self.telemetry.error("the platform did not say whether the job ended", exception=error)
            return Life.RUNNING

    def _tell(self, item: StopItem) -> None:
        """Publish that a job continues; twice if the function dies before it records that."""
        self.bus.publish(
            STOP_OVERDUE_DETAIL_TYPE,
            overdue_detail(item),
            subject=f"the event that {item.target.training_job_name} continues",
        )


def overdue_detail(item: StopItem) -> dict[str, Any]:
    """Return the detail of the event that a job continues.

    `contracts/schemas/stop_overdue_event.json` describes it.
    """
    return {
        "SchemaVersion": STATUS_SCHEMA_VERSION,
        "TrainingJobName": item.target.training_job_name,
        "RunId": item.target.run_id,
        "DebugOutputUri": item.target.root_uri,
        "Platform": item.target.platform,
        "RuleConfigurationName": item.reason.rule,
        "Reason": item.reason.text,
        "RequestedAt": item.requested_at_ms,
        "NumRequests": item.num_requests,
    }
