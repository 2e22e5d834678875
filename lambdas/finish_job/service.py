"""Wakes the evaluators of ended training jobs, publishes their summaries, and writes reports.

A job that was killed or crashed writes no end marker, but SageMaker reports its end. As for
stopping, only a registration in a folder with the job's name represents a SageMaker job.

The summary is published and the report is written when all rules of a run have a verdict, and again
when the job ends. A job that ends earlier has a summary of the statuses so far. Stepwatch's events
cause this but are not trusted: the registration has the job's location, and the table the findings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lambdas.finish_job.job_summary import publish_summary
from lambdas.shared.registration import Heartbeat
from lambdas.shared.wake import Wake, WakeReason
from lambdas.shared.watched_job_file import bucket_of

if TYPE_CHECKING:
    from lambdas.finish_job.events import JobEvent, StatusChangeOfRule
    from lambdas.finish_job.job_reports import JobReports
    from lambdas.shared.event_bus import EventBus
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration, RegistrationTable
    from lambdas.shared.run_states import RunStates
    from lambdas.shared.wake import WakeQueue

__all__ = ["FinishJobService"]


@dataclass(frozen=True, kw_only=True)
class FinishJobService:
    """Wakes evaluators of ended jobs, records interruptions, and reports on jobs.

    Attributes:
        bucket_names: Watched buckets.
        registrations: The registered jobs.
        queue: The evaluators' queues.
        states: The states of rules over runs.
        bus: The bus for summaries.
        reports: Writes the reports of jobs.
        telemetry: Logs and metrics.
    """

    bucket_names: Collection[str]
    registrations: RegistrationTable
    queue: WakeQueue
    states: RunStates
    bus: EventBus
    reports: JobReports
    telemetry: Telemetry

    def handle(self, event: JobEvent) -> int:
        """Process an event; return the number of woken evaluations.

        The same event may arrive again: an evaluation that is woken twice finds nothing to do.

        Raises:
            WakeNotSentError: A queue did not accept a message.
            AnnouncementError: The bus did not accept a summary.
            ClientError: The table or a queue failed.
        """
        registrations = [
            found
            for found in self.registrations.find(event.training_job_name)
            if found.is_sagemaker_job and self._is_watched(found)
        ]
        if not registrations:
            return 0
        if not event.has_ended:
            sign = Heartbeat(event.at, event.is_interrupted)
            self.registrations.record_heartbeat(event.training_job_name, sign)
            if event.is_interrupted:
                self.telemetry.count("JobsInterrupted")
                self.telemetry.info("the job is interrupted, not silent")
            return 0
        wakes = [Wake(job.root_uri, job.run_id, WakeReason.ENDED) for job in registrations]
        for rule in sorted(self.queue.rules):
            self.queue.send_all(rule, wakes)
        self.telemetry.count("JobsEnded")
        self.telemetry.info("the job has ended; its runs are evaluated", num_runs=len(wakes))
        for job in registrations:
            self._summarise(job, has_ended=True)  # rules that had a verdict before send no event
        return len(wakes) * len(self.queue.rules)

    def report(self, news: StatusChangeOfRule) -> bool:
        """Publish and write the result of the job in an event, if all its rules have a verdict.

        Returns:
            Whether the report was written.

        Raises:
            AnnouncementError: The bus did not accept the summary.
            ClientError: The table failed.
        """
        job = self.registrations.get(news.training_job_name, news.root_uri)
        if job is None or not self._is_watched(job):
            return False
        return self._summarise(job)

    def _summarise(self, job: Registration, *, has_ended: bool = False) -> bool:
        """Publish the summary and write the report; of an ended job, at least the summary.

        Returns:
            Whether the report was written.
        """
        states = self.states.load(job.root_uri, job.run_id)
        is_complete = all(state.status.is_final for state in states.values())
        if not states or not (is_complete or has_ended):
            return False
        publish_summary(self.bus, job, states)
        self.telemetry.count("SummariesSent")
        return is_complete and self.reports.write(job, states)

    def _is_watched(self, registration: Registration) -> bool:
        bucket = bucket_of(registration.root_uri)
        return bucket in self.bucket_names
