"""Evaluates one rule for the jobs that a batch of messages tells of, each job once.

A job's files may be more than the process can take: it runs out of memory or of time, and all
records of the batch come back, the innocent ones too. So an attempt at a job whose records were
received before is noted, and the note taken back afterwards (`attempts.py`): each death of the
process marks one job. Marked jobs are handed back untried while there are unmarked ones among those
that came back, and are then tried one by one, the one with the fewest deaths first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.end_marker import MAX_END_MARKER_BYTES, EndMarker, parse_end_marker
from hook_layer.format.errors import JobFileError
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import ObjectNotFoundError, Store
from lambdas.evaluate_rule.messages import IgnoredMessageError, TensorObject, parse_message
from lambdas.evaluate_rule.run_evaluation import RunEvaluation, RunFiles
from lambdas.shared.registration import RUN_ID
from rule_runtime.trial.step_index import StepFile, load_step_files

if TYPE_CHECKING:
    from lambdas.evaluate_rule.attempts import Attempts
    from lambdas.evaluate_rule.job_registry import JobRegistry
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.settings import EvaluateRuleSettings

__all__ = ["EvaluateRuleService", "OutOfTimeError", "PutBackError"]

_RESERVED_SHARE: Final = 0.25


class OutOfTimeError(Exception):
    """The function's time is nearly over; the record is to be delivered again."""


class PutBackError(Exception):
    """The record was received before; it is to be delivered again, with fewer others."""


@dataclass
class _JobMessages:
    """The messages of a batch that tell of one trial."""

    message_ids: list[str] = field(default_factory=list)
    objects: list[TensorObject] = field(default_factory=list)
    were_received: bool = False


class EvaluateRuleService:
    """Evaluates the configured rule for batches of messages.

    Args:
        settings: The function's settings.
        jobs: Which job writes below a root.
        attempts: Which jobs the process died of.
        evaluation: Evaluates the rule over a run.
        open_store: Returns the store at a trial's root.
        telemetry: Logs and metrics.
    """

    def __init__(
        self,
        *,
        settings: EvaluateRuleSettings,
        jobs: JobRegistry,
        attempts: Attempts,
        evaluation: RunEvaluation,
        open_store: Callable[[str], Store],
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._attempts = attempts
        self._evaluation = evaluation
        self._open_store = open_store
        self._telemetry = telemetry

    def evaluate(
        self, records: Iterable[Mapping[str, Any]], remaining_ms: Callable[[], float]
    ) -> dict[str, Exception]:
        """Evaluate what a batch of SQS records tells of.

        Jobs are taken one after the other, those whose records are all new first, while at least a
        quarter of the time is left; every job's state is saved before the next one's turn. The
        records of the jobs that had no turn fail, and are delivered again.

        Args:
            records: Records of an SQS event.
            remaining_ms: Milliseconds that are left to the function, as it goes on.

        Returns:
            What failed, by message id; all other records are done with.
        """
        reserve_ms = remaining_ms() * _RESERVED_SHARE
        failures: dict[str, Exception] = {}
        jobs = self._by_job(records)
        put_back = self._put_back(jobs)
        for root_uri, messages in jobs.items():
            failure: Exception | None = None
            if root_uri in put_back:
                failure = PutBackError(f"{root_uri} is to be looked at apart from the others")
                self._telemetry.count("JobsPutBack")
            elif remaining_ms() < reserve_ms:
                failure = OutOfTimeError(f"no time left for {root_uri}")
                self._telemetry.count("JobsPutOff")
            else:
                failure = self._failure_of(root_uri, messages)
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
            return self._attempts.num_unfinished(root_uri)
        except Exception as error:  # noqa: BLE001 - the evaluation, which needs the table too, tells
            self._telemetry.warning("attempts not known", problem=str(error))
            return 0

    def _by_job(self, records: Iterable[Mapping[str, Any]]) -> dict[str, _JobMessages]:
        jobs: dict[str, _JobMessages] = defaultdict(_JobMessages)
        for record in records:
            try:
                found = parse_message(record["body"], self._settings.tensor_bucket_names)
            except IgnoredMessageError as error:
                self._telemetry.count("MessagesIgnored")
                log = self._telemetry.info if error.is_expected else self._telemetry.warning
                log("message ignored", message_id=record["messageId"], reason=str(error))
                continue
            job = jobs[found.root_uri]
            job.message_ids.append(record["messageId"])
            job.objects.append(found)
            job.were_received |= _receive_count(record) > 1
        return dict(sorted(jobs.items(), key=lambda item: item[1].were_received))

    def _failure_of(self, root_uri: str, messages: _JobMessages) -> Exception | None:
        """Look at a job; return what kept it from being evaluated."""
        try:
            with self._attempt(root_uri) if messages.were_received else nullcontext():
                self._look_at_job(self._open_store(root_uri), messages.objects)
        except Exception as error:  # noqa: BLE001 - one job's failure must not fail the others'
            self._telemetry.count("JobsFailed")
            self._telemetry.error("job not evaluated", exception=error, debug_output_uri=root_uri)
            return error
        return None

    @contextmanager
    def _attempt(self, root_uri: str) -> Iterator[None]:
        """Note an attempt; the note stays when the process does not survive it."""
        self._attempts.begin(root_uri)
        try:
            yield
        except Exception:
            self._attempts.end(root_uri)
            raise
        self._attempts.end(root_uri)

    def _look_at_job(self, store: Store, objects: Sequence[TensorObject]) -> None:
        rule = self._settings.rule_configuration_name
        has_marker = any(found.is_end_marker for found in objects)
        if not self._jobs.is_asked_for(store, rule, has_ended=has_marker):
            self._telemetry.count("MessagesNotAskedFor", len(objects))
            return
        keys = {found.key for found in objects if not found.is_end_marker}
        runs = self._by_run(store, load_step_files(store, sorted(keys)))
        marker = self._end_marker(store) if has_marker else None
        ended_run = None if marker is None else marker.run_id
        if ended_run is not None:
            runs.setdefault(ended_run, [])
        times = [found.created_at for found in objects if found.created_at is not None]
        for run, files in sorted(runs.items()):
            registration = self._jobs.of_run(store, run)
            if not registration.asks_for(rule):
                continue  # a run that began since: its job.json has just been read
            with self._telemetry.job(registration.training_job_name, run):
                self._evaluation.look_at(
                    RunFiles(
                        store,
                        registration,
                        files,
                        has_ended=marker is not None and run == ended_run,
                        last_sequences=marker.sequences if marker and run == ended_run else {},
                        created_at=max(times, default=None),
                    )
                )

    def _by_run(self, store: Store, files: Iterable[StepFile]) -> dict[str, list[StepFile]]:
        """Return the files by run; files of the original client are the run "".

        A file that cannot be parsed does not say its run, and counts for the current one.
        """
        runs: dict[str, list[StepFile]] = defaultdict(list)
        for file in files:
            if file.index is None:
                runs[self._jobs.current(store).run_id].append(file)
            elif file.index.run is None or RUN_ID.fullmatch(file.index.run):
                runs[file.index.run or ""].append(file)
            else:
                self._telemetry.count("FilesIgnored")
                self._telemetry.warning("index file with an impossible run id", object_key=file.key)
        return runs

    def _end_marker(self, store: Store) -> EndMarker | None:
        """Return the end marker with the run that it speaks of; None when it ends none.

        A marker that cannot be read still says what the original's says by being there, that the
        current run ended; what that run wrote is then found by listing.
        """
        try:
            data = store.get(END_MARKER, 0, MAX_END_MARKER_BYTES + 1)
            marker = parse_end_marker(data, file=store.uri + END_MARKER)
        except ObjectNotFoundError:
            self._telemetry.info("the end marker is gone: another run has begun")
            return None
        except JobFileError as error:
            self._telemetry.count("EndMarkersUnreadable")
            self._telemetry.warning("the end marker cannot be read", problem=str(error))
            marker = EndMarker()
        if marker.run_id is None:
            return replace(marker, run_id=self._jobs.current(store).run_id)
        if RUN_ID.fullmatch(marker.run_id) is None:
            self._telemetry.warning("end marker with an impossible run id", text=marker.run_id[:80])
            return None
        return marker


def _receive_count(record: Mapping[str, Any]) -> int:
    return int(record.get("attributes", {}).get("ApproximateReceiveCount", 1))
