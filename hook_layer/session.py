"""A run's open trial: its name tag, writer and stop signal, from the first step to the end."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hook_layer.capture import StepRecord
from hook_layer.config import JobEnvironment
from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.end_marker import EndMarker
from hook_layer.format.errors import FormatError
from hook_layer.format.index import parse_index
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import END_MARKER, INDEX_PREFIX, JOB_FILE, collections_key
from hook_layer.step_files import RunIdentity
from hook_layer.stop_signal import StopSignal
from hook_layer.storage.base import Store
from hook_layer.writer import OnFull, StepWriter

__all__ = ["SessionOptions", "TrialSession"]

logger = logging.getLogger("stepwatch")


@dataclass(frozen=True)
class SessionOptions:
    """How a session writes and listens.

    Attributes:
        queue_bytes: Memory bound of the writer.
        on_full: What happens when it is reached.
        max_wait_s: How long training may wait then, seconds.
        stop_poll_s: Time between two looks for a stop request, seconds.
    """

    queue_bytes: int
    on_full: OnFull
    max_wait_s: float
    stop_poll_s: float


class TrialSession:
    """Writes one worker's part of a trial.

    On opening, the chief worker removes the end marker of an earlier run in the same folder and
    writes `job.json`, before any step.

    Args:
        store: The trial's root.
        identity: Run and worker.
        is_chief: Whether this worker writes what there is once per job, and listens for the stop.
        options: How.
    """

    def __init__(
        self, store: Store, identity: RunIdentity, *, is_chief: bool, options: SessionOptions
    ) -> None:
        self.identity = identity
        self._store = store
        self._is_chief = is_chief
        self._job = JobEnvironment.detect(store.uri)
        self._is_remote = not store.uri.startswith("file:")
        self._collections: bytes | None = None
        self.writer = StepWriter(
            store,
            identity,
            queue_bytes=options.queue_bytes,
            on_full=options.on_full,
            max_wait_s=options.max_wait_s,
        )
        self.stop_signal = StopSignal(store, identity.run_id, poll_s=options.stop_poll_s)
        if is_chief:
            self.writer.housekeep("looking for other runs", self._look_for_other_runs)
            self.writer.housekeep(f"removing {END_MARKER}", partial(store.delete, END_MARKER))
            self.writer.put_file(JOB_FILE, self._job_file().encode())
            self.stop_signal.start()

    @property
    def has_collections(self) -> bool:
        """Whether the collections file was written."""
        return self._collections is not None

    def write_collections(self, collections: CollectionsFile) -> None:
        """Write the collections file, unless it is the same as before."""
        content = collections.encode()
        if content != self._collections:
            self._collections = content
            self.writer.put_file(collections_key(self.identity.worker), content)

    def close(self, *, end_of_training: bool, timeout_s: float | None) -> None:
        """Write what waits, then the end marker if training ended, and report what is missing."""
        self.stop_signal.close()
        if end_of_training and self._is_chief and self._marks_the_end:
            self.writer.put_file(END_MARKER, self._end_marker, is_last=True)
        in_time = self.writer.close(timeout_s)
        counters = self.writer.counters
        if in_time and not counters.steps_lost and not counters.files_undelivered:
            return
        logger.warning(
            "%s is not complete: %d steps could not be delivered and %d were dropped, %d are stored"
            "%s%s%s",
            self._store.uri,
            counters.steps_undelivered,
            counters.steps_dropped,
            counters.steps_written,
            f"; {counters.files_undelivered} other files" if counters.files_undelivered else "",
            "" if in_time else f"; gave up waiting after {timeout_s} s",
            f"; first error: {counters.first_error}" if counters.first_error else "",
        )

    def finish(
        self,
        records: Sequence[StepRecord],
        collections: CollectionsFile,
        *,
        timeout_s: float | None,
    ) -> None:
        """Write the last steps of a training that ended, and close."""
        for record in records:
            if record.tensors:
                self.writer.submit(record)
        self.write_collections(collections)
        self.close(end_of_training=True, timeout_s=timeout_s)

    def _look_for_other_runs(self) -> None:
        """Warn if the first index file in the folder is not of this run."""
        key = next(iter(self._store.list(INDEX_PREFIX)), None)
        if key is None:
            return
        try:
            is_ours = parse_index(self._store.get(key), file=key).run == self.identity.run_id
        except FormatError:
            is_ours = False
        if not is_ours:
            logger.warning(
                "%s holds files of another run (%s). Files of the same steps are overwritten, the "
                "others stay; give every run a folder of its own",
                self._store.uri,
                key,
            )

    @property
    def _marks_the_end(self) -> bool:
        # In a local folder of a SageMaker job the platform does it.
        return self._is_remote or self._job.platform != "sagemaker"

    def _end_marker(self) -> bytes:
        sequences = {self.identity.worker: self.writer.last_sequence}
        return EndMarker(self.identity.run_id, sequences).encode()

    def _job_file(self) -> JobFile:
        return JobFile(
            training_job_name=self._job.training_job_name,
            run_id=self.identity.run_id,
            platform=self._job.platform,
            started_at=dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            training_job_arn=self._job.training_job_arn,
        )
