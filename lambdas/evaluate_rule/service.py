"""Evaluates one rule for the jobs that a batch of messages tells of, each job once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import ObjectNotFoundError, Store
from lambdas.evaluate_rule.messages import IgnoredMessageError, TensorObject, parse_message
from lambdas.evaluate_rule.run_evaluation import RunEvaluation, RunFiles
from rule_runtime.trial.step_index import StepFile, load_step_files

if TYPE_CHECKING:
    from lambdas.evaluate_rule.job_registry import JobRegistry
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.settings import EvaluateRuleSettings

__all__ = ["EvaluateRuleService", "OutOfTimeError"]

_RUN_ID: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_MAX_MARKER_BYTES: Final = 256
_RESERVED_SHARE: Final = 0.25


class OutOfTimeError(Exception):
    """The function's time is nearly over; the record is to be delivered again."""


@dataclass
class _JobMessages:
    """The messages of a batch that tell of one trial."""

    message_ids: list[str] = field(default_factory=list)
    objects: list[TensorObject] = field(default_factory=list)


class EvaluateRuleService:
    """Evaluates the configured rule for batches of messages.

    Args:
        settings: The function's settings.
        jobs: Which job writes below a root.
        evaluation: Evaluates the rule over a run.
        open_store: Returns the store at a trial's root.
        telemetry: Logs and metrics.
    """

    def __init__(
        self,
        settings: EvaluateRuleSettings,
        jobs: JobRegistry,
        evaluation: RunEvaluation,
        open_store: Callable[[str], Store],
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._evaluation = evaluation
        self._open_store = open_store
        self._telemetry = telemetry

    def evaluate(
        self, records: Iterable[Mapping[str, Any]], remaining_ms: Callable[[], float]
    ) -> dict[str, Exception]:
        """Evaluate what a batch of SQS records tells of.

        Jobs are taken one after the other while at least a quarter of the time is left; every job's
        state is saved before the next one's turn. The records of the jobs that had no turn fail,
        and are delivered again.

        Args:
            records: Records of an SQS event.
            remaining_ms: Milliseconds that are left to the function, as it goes on.

        Returns:
            What failed, by message id; all other records are done with.
        """
        reserve_ms = remaining_ms() * _RESERVED_SHARE
        failures: dict[str, Exception] = {}
        for root_uri, messages in self._by_job(records).items():
            failure: Exception | None = None
            if remaining_ms() < reserve_ms:
                failure = OutOfTimeError(f"no time left for {root_uri}")
                self._telemetry.count("JobsPutOff")
            else:
                failure = self._failure_of(root_uri, messages.objects)
            if failure is not None:
                failures |= dict.fromkeys(messages.message_ids, failure)
        return failures

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
            jobs[found.root_uri].message_ids.append(record["messageId"])
            jobs[found.root_uri].objects.append(found)
        return jobs

    def _failure_of(self, root_uri: str, objects: Sequence[TensorObject]) -> Exception | None:
        """Look at a job; return what kept it from being evaluated."""
        try:
            self._look_at_job(self._open_store(root_uri), objects)
        except Exception as error:  # noqa: BLE001 - one job's failure must not fail the others'
            self._telemetry.count("JobsFailed")
            self._telemetry.error("job not evaluated", exception=error, debug_output_uri=root_uri)
            return error
        return None

    def _look_at_job(self, store: Store, objects: Sequence[TensorObject]) -> None:
        rule = self._settings.rule_configuration_name
        has_marker = any(found.is_end_marker for found in objects)
        if not self._jobs.is_asked_for(store, rule, has_ended=has_marker):
            self._telemetry.count("MessagesNotAskedFor", len(objects))
            return
        keys = {found.key for found in objects if not found.is_end_marker}
        runs = self._by_run(store, load_step_files(store, sorted(keys)))
        ended_run = self._ended_run(store) if has_marker else None
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
                        has_ended=run == ended_run,
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
            elif file.index.run is None or _RUN_ID.fullmatch(file.index.run):
                runs[file.index.run or ""].append(file)
            else:
                self._telemetry.count("FilesIgnored")
                self._telemetry.warning("index file with an impossible run id", object_key=file.key)
        return runs

    def _ended_run(self, store: Store) -> str | None:
        """Return the run that the end marker speaks of; None when it is gone or says nonsense."""
        try:
            run = store.get(END_MARKER, 0, _MAX_MARKER_BYTES).decode("ascii", "replace").strip()
        except ObjectNotFoundError:
            self._telemetry.info("the end marker is gone: another run has begun")
            return None
        if not run:
            return self._jobs.current(store).run_id
        if _RUN_ID.fullmatch(run) is None:
            self._telemetry.warning("end marker with an impossible run id", text=run[:80])
            return None
        return run
