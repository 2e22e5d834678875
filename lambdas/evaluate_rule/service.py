"""Evaluates rules for the jobs in a batch of messages, each job once.

A job's files may be too much for the process: it runs out of memory or time, and all records of the
batch are delivered again, including those of other jobs. So attempts at jobs with repeated records
are recorded, and removed afterwards (`attempts.py`): each death of the process marks one job.
Marked jobs are returned unevaluated while the repeated records include unmarked jobs. Then they are
evaluated one by one, the one with the fewest deaths first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from lambdas.evaluate_rule.attempts import RuleAttempts, recorded
from lambdas.evaluate_rule.continuation import OutOfTimeError
from lambdas.evaluate_rule.job_event import JobEvent
from lambdas.evaluate_rule.job_limits import MAX_BATCH_S, JobLimits, TimeBudget
from lambdas.evaluate_rule.messages import IgnoredMessageError, parse_message
from lambdas.shared.wake import Wake

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.evaluate_rule.attempts import Attempts
    from lambdas.evaluate_rule.job_evaluation import JobEvaluation
    from lambdas.shared.observability import Telemetry

__all__ = ["EvaluateRuleService", "PutBackError"]

_RESERVED_SHARE: Final = 0.25


class PutBackError(Exception):
    """A repeated record must be delivered again, with fewer others."""


@dataclass(frozen=True, kw_only=True)
class EvaluateRuleService:
    """Evaluates the function's rules for batches of messages.

    Attributes:
        bucket_names: Watched buckets.
        jobs: Evaluates one job.
        attempts: Records jobs that made the process die.
        open_store: Returns the store at a trial's root.
        limits: What one job may take of this process.
        telemetry: Logs and metrics.
    """

    bucket_names: Collection[str]
    jobs: JobEvaluation
    attempts: Attempts
    open_store: Callable[[str], Store]
    limits: JobLimits
    telemetry: Telemetry

    def evaluate(
        self, records: Iterable[Mapping[str, Any]], remaining_ms: Callable[[], float]
    ) -> dict[str, Exception]:
        """Evaluate the jobs in a batch of SQS records.

        Jobs are evaluated one after another, those with only new records first, while at least a
        quarter of the time is left. Each job's state is saved before the next one. Each has its
        share of the time; a later call continues with an unfinished job. Records of jobs without a
        turn fail, and are delivered again.

        Args:
            records: Records of an SQS event.
            remaining_ms: Returns the function's remaining time, milliseconds.

        Returns:
            Errors by message id; all other records are finished.
        """
        budget = TimeBudget(remaining_ms, remaining_ms() * _RESERVED_SHARE)
        failures: dict[str, Exception] = {}
        jobs = self._by_job(records, budget)
        put_back = self._put_back(jobs)
        num_left = len(jobs) - len(put_back)
        for job in jobs:
            failure: Exception | None = None
            if job.root_uri in put_back:
                failure = PutBackError(f"{job.root_uri} is evaluated separately")
                self.telemetry.count("JobsPutBack")
            elif not budget.may_go_on():
                failure = OutOfTimeError(f"no time left for {job.root_uri}")
                self.telemetry.count("JobsPutOff")
            else:
                job.budget = budget.share(num_left)
                failure = self._failure_of(job)
                num_left -= 1
            if failure is not None:
                failures |= dict.fromkeys(job.message_ids, failure)
        return failures

    def _put_back(self, jobs: Iterable[JobEvent]) -> set[str]:
        """Return the roots that must not be evaluated now, because the process died of them."""
        returned = [job.root_uri for job in jobs if job.was_received]
        if len(returned) <= 1:
            return set()
        num_deaths = {root_uri: self._num_deaths(root_uri) for root_uri in returned}
        marked = [root_uri for root_uri in returned if num_deaths[root_uri]]
        if len(marked) == len(returned):
            marked.remove(min(marked, key=lambda root_uri: num_deaths[root_uri]))
        return set(marked)

    def _num_deaths(self, root_uri: str) -> int:
        try:
            return self.attempts.num_unfinished(root_uri)
        except Exception as error:  # noqa: BLE001 - the evaluation needs the table, too, and reports the error
            self.telemetry.warning("attempts not known", problem=str(error))
            return 0

    def _by_job(self, records: Iterable[Mapping[str, Any]], budget: TimeBudget) -> list[JobEvent]:
        jobs: dict[str, JobEvent] = {}
        for record in records:
            try:
                found = parse_message(record["body"], self.bucket_names)
            except IgnoredMessageError as error:
                self.telemetry.count("MessagesIgnored")
                log = self.telemetry.info if error.is_expected else self.telemetry.warning
                log("message ignored", message_id=record["messageId"], reason=str(error))
                continue
            root_uri = found.root_uri
            job = jobs.setdefault(root_uri, JobEvent(root_uri=root_uri, budget=budget))
            job.message_ids.append(record["messageId"])
            was_received = _receive_count(record) > 1
            if isinstance(found, Wake):
                # An earlier delivery of this message may have written the state.
                job.wakes.append(replace(found, version=0) if was_received else found)
            else:
                job.objects.append(found)
            job.was_received |= was_received
        for job in jobs.values():
            self._limit(job)
        # Jobs that take much time, or may end the process, are last.
        return sorted(jobs.values(), key=attrgetter("was_received", "is_limited"))

    def _limit(self, job: JobEvent) -> None:
        """Drop messages of a job above its limit."""
        num_objects = len(job.objects)
        job.objects = list(self.limits.admit(job.root_uri, job.objects))
        job.is_limited = self.limits.is_exceeded(job.root_uri)
        num_put_off = num_objects - len(job.objects)
        if num_put_off:
            self.telemetry.count("FilesPutOff", num_put_off)
            self.telemetry.info(
                "files put off", debug_output_uri=job.root_uri, num_files=num_put_off
            )

    def _failure_of(self, job: JobEvent) -> Exception | None:
        """Evaluate a job; return the error, if any."""
        if self.limits.is_paused(job.root_uri):
            self.telemetry.count("JobsPaused")
            return OutOfTimeError(f"{job.root_uri} failed repeatedly, and waits")
        if not (job.objects or job.wakes):
            return None
        if job.is_limited:
            job.budget = job.budget.at_most(MAX_BATCH_S)
        failure = self._evaluate_job(job)
        is_late = isinstance(failure, OutOfTimeError)
        self.limits.report(job.root_uri, has_failed=failure is not None and not is_late)
        return failure

    def _evaluate_job(self, job: JobEvent) -> Exception | None:
        is_repeated, root_uri = job.was_received, job.root_uri
        try:
            until = time.time() + job.budget.remaining_ms() / 1000
            job.attempts = RuleAttempts(self.attempts, root_uri, until) if is_repeated else None
            with recorded(self.attempts, root_uri) if is_repeated else nullcontext():
                self.jobs.evaluate(job, self.open_store(root_uri))
        except OutOfTimeError as error:
            self.telemetry.count("JobsPutOff")
            return error
        except Exception as error:  # noqa: BLE001 - one job must not affect the others
            self.telemetry.count("JobsFailed")
            self.telemetry.error("job not evaluated", exception=error, debug_output_uri=root_uri)
            return error
        return None


def _receive_count(record: Mapping[str, Any]) -> int:
    return int(record.get("attributes", {}).get("ApproximateReceiveCount", 1))
