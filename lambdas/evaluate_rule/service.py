"""Evaluates one rule for the jobs in a batch of messages, each job once.

A job's files may be more than the process can take: it runs out of memory or of time, and all
records of the batch come back, the innocent ones too. So an attempt at a job whose records were
received before is noted, and the note taken back afterwards (`attempts.py`): each death of the
process marks one job. Marked jobs are handed back untried while there are unmarked ones among those
that came back, and are then tried one by one, the one with the fewest deaths first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lambdas.evaluate_rule.continuation import OutOfTimeError
from lambdas.evaluate_rule.messages import IgnoredMessageError, TensorObject, parse_message
from lambdas.evaluate_rule.turn import Turn
from lambdas.shared.wake import Wake

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.evaluate_rule.attempts import Attempts
    from lambdas.evaluate_rule.job_look import JobLook
    from lambdas.shared.observability import Telemetry

__all__ = ["EvaluateRuleService", "PutBackError"]

_RESERVED_SHARE: Final = 0.25


class PutBackError(Exception):
    """The record was received before; it must be delivered again, with fewer others."""


@dataclass
class _JobMessages:
    """The messages of a batch about one trial."""

    message_ids: list[str] = field(default_factory=list)
    objects: list[TensorObject] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    were_received: bool = False


@dataclass(frozen=True, kw_only=True)
class EvaluateRuleService:
    """Evaluates the configured rule for batches of messages.

    Attributes:
        bucket_names: Buckets that are watched.
        jobs: Looks at one job.
        attempts: Which jobs the process died of.
        open_store: Returns the store at a trial's root.
        telemetry: Logs and metrics.
    """

    bucket_names: Collection[str]
    jobs: JobLook
    attempts: Attempts
    open_store: Callable[[str], Store]
    telemetry: Telemetry

    def evaluate(
        self, records: Iterable[Mapping[str, Any]], remaining_ms: Callable[[], float]
    ) -> dict[str, Exception]:
        """Evaluate the jobs in a batch of SQS records.

        Jobs are taken one after the other, those whose records are all new first, while at least a
        quarter of the time is left; every job's state is saved before the next one's turn. Each has
        its share of the time, and one that is not through by then is gone on with by a later call.
        The records of the jobs that had no turn fail, and are delivered again.

        Args:
            records: Records of an SQS event.
            remaining_ms: Milliseconds that are left to the function, as it continues.

        Returns:
            What failed, by message id; all other records are done with.
        """
        turn = Turn(remaining_ms, remaining_ms() * _RESERVED_SHARE)
        failures: dict[str, Exception] = {}
        jobs = self._by_job(records)
        put_back = self._put_back(jobs)
        num_left = len(jobs) - len(put_back)
        for root_uri, messages in jobs.items():
            failure: Exception | None = None
            if root_uri in put_back:
                failure = PutBackError(f"{root_uri} is evaluated apart from the others")
                self.telemetry.count("JobsPutBack")
            elif not turn.may_go_on():
                failure = OutOfTimeError(f"no time left for {root_uri}")
                self.telemetry.count("JobsPutOff")
            else:
                failure = self._failure_of(root_uri, messages, turn.share(num_left))
                num_left -= 1
            if failure is not None:
                failures |= dict.fromkeys(messages.message_ids, failure)
        return failures

    def _put_back(self, jobs: Mapping[str, _JobMessages]) -> set[str]:
        """Return the roots that are not to be looked at now, for what they did to the process."""
        returned = [root_uri for root_uri, messages in jobs.items() if messages.were_received]
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
        except Exception as error:  # noqa: BLE001 - the evaluation, which needs the table too, tells
            self.telemetry.warning("attempts not known", problem=str(error))
            return 0

    def _by_job(self, records: Iterable[Mapping[str, Any]]) -> dict[str, _JobMessages]:
        jobs: dict[str, _JobMessages] = defaultdict(_JobMessages)
        for record in records:
            try:
                found = parse_message(record["body"], self.bucket_names)
            except IgnoredMessageError as error:
                self.telemetry.count("MessagesIgnored")
                log = self.telemetry.info if error.is_expected else self.telemetry.warning
                log("message ignored", message_id=record["messageId"], reason=str(error))
                continue
            job = jobs[found.root_uri]
            job.message_ids.append(record["messageId"])
            was_received = _receive_count(record) > 1
            if isinstance(found, Wake):
                # The state may have been written by this very message's earlier delivery.
                job.wakes.append(replace(found, version=0) if was_received else found)
            else:
                job.objects.append(found)
            job.were_received |= was_received
        return dict(sorted(jobs.items(), key=lambda item: item[1].were_received))

    def _failure_of(self, root_uri: str, messages: _JobMessages, turn: Turn) -> Exception | None:
        """Look at a job; return what kept it from being evaluated."""
        try:
            with self._attempt(root_uri) if messages.were_received else nullcontext():
                store = self.open_store(root_uri)
                self.jobs.look_at(store, messages.objects, messages.wakes, turn)
        except OutOfTimeError as error:
            self.telemetry.count("JobsPutOff")
            return error
        except Exception as error:  # noqa: BLE001 - one job's failure must not fail the others'
            self.telemetry.count("JobsFailed")
            self.telemetry.error("job not evaluated", exception=error, debug_output_uri=root_uri)
            return error
        return None

    @contextmanager
    def _attempt(self, root_uri: str) -> Iterator[None]:
        """Note an attempt; the note stays when the process does not survive it."""
        self.attempts.begin(root_uri)
        try:
            yield
        except Exception:
            self.attempts.end(root_uri)
            raise
        self.attempts.end(root_uri)


def _receive_count(record: Mapping[str, Any]) -> int:
    return int(record.get("attributes", {}).get("ApproximateReceiveCount", 1))
