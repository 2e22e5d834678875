"""Has the runs of a training job judged once SageMaker says that the job has ended, and reports.

A job that was killed, or that crashed hard, writes no end marker; SageMaker knows its end all the
same. Whose registration speaks for a job of SageMaker is decided as for stopping it: only one that
lies in a folder of the job's name.

The report is written when a rule has come to its verdict and no other is still judging, which our
own events tell, and again when the job ends. Those events are not believed: the registration says
where the job is, and the table what its rules found.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lambdas.shared.registration import LifeSign
from lambdas.shared.wake import Wake, WakeReason
from lambdas.shared.watched_job_file import bucket_of

if TYPE_CHECKING:
    from lambdas.finish_job.events import JobEvent, StatusNews
    from lambdas.finish_job.job_reports import JobReports
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration, RegistrationTable
    from lambdas.shared.wake import WakeQueue

__all__ = ["FinishJobService"]


@dataclass(frozen=True, kw_only=True)
class FinishJobService:
    """Wakes the evaluators of jobs that have ended, notes which are interrupted, has them reported.

    Attributes:
        bucket_names: Buckets that are watched.
        registrations: The registered jobs.
        queue: The evaluators' queues.
        reports: Writes the reports of jobs.
        telemetry: Logs and metrics.
    """

    bucket_names: Collection[str]
    registrations: RegistrationTable
    queue: WakeQueue
    reports: JobReports
    telemetry: Telemetry

    def handle(self, event: JobEvent) -> int:
        """Do what an event asks for; return how many evaluations were woken.

        The same event may come again: anyone who is woken twice finds nothing to do.

        Raises:
            WakeNotSentError: A queue did not take a message.
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
            sign = LifeSign(event.at, event.is_interrupted)
            self.registrations.note_life_sign(event.training_job_name, sign)
            if event.is_interrupted:
                self.telemetry.count("JobsInterrupted")
                self.telemetry.info("the job is interrupted; its silence is none")
            return 0
        wakes = [Wake(job.root_uri, job.run_id, WakeReason.ENDED) for job in registrations]
        for rule in sorted(self.queue.rules):
            self.queue.send_all(rule, wakes)
        self.telemetry.count("JobsEnded")
        self.telemetry.info("the job has ended; its runs are judged", num_runs=len(wakes))
        for job in registrations:
            self.reports.write_if_judged(job)  # who is woken, and judged before, has no news
        return len(wakes) * len(self.queue.rules)

    def report(self, news: StatusNews) -> bool:
        """Write the report of the job that an event is about, if all its rules have judged.

        Returns:
            Whether it was written.

        Raises:
            ClientError: The table failed.
        """
        job = self.registrations.get(news.training_job_name, news.root_uri)
        if job is None or not self._is_watched(job):
            return False
        return self.reports.write_if_judged(job)

    def _is_watched(self, registration: Registration) -> bool:
        bucket = bucket_of(registration.root_uri)
        return bucket in self.bucket_names
