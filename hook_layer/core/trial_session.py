"""The open trial of a run: job file, writer and stop signal, from the first step to the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from hook_layer.capture.captured_step import StepRecord
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.configuration.job import HookTargets, JobEnvironment
from hook_layer.delivery.spool_folder import SpoolTarget
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.tensorboard import TensorBoardExporter
from hook_layer.delivery.writer import StepWriter
from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.end_marker import EndMarker
from hook_layer.format.errors import FormatError
from hook_layer.format.index import parse_index
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import (
    END_MARKER,
    ENVIRONMENT_FILE,
    INDEX_PREFIX,
    JOB_FILE,
    collections_key,
)
from hook_layer.process.time_limit import within
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.resuming.resume import numbering, run_in
from hook_layer.run.environment import environment_of_process
from hook_layer.run.old_spools import report_old_spools
from hook_layer.run.stop_signal import StopSignal

__all__ = ["TrialSession"]

logger = logging.getLogger("stepwatch")

_CHIEF: Final = "worker_0"
_LOOK_TIMEOUT_S: Final = 10.0


class TrialSession:
    """Writes one worker's part of a trial.

    On opening, the chief worker removes the end marker of an earlier run in the same folder and
    writes `job.json` and `environment.json`, before any step.

    Args:
        targets: Where to write.
        identity: Run and worker. `worker_0` writes the files that exist once per job, and listens
            for stop requests.
        start: Where the run begins or continues.
        job: The job as described by its environment.
        options: Options of the hook.
        world_size: Number of ranks of the run, whether they write or not.

    Attributes:
        collections: Content of the newest collections file; None before the first.
        extent: That of the collections when it was written.
    """

    def __init__(
        self,
        targets: HookTargets,
        identity: RunIdentity,
        start: RunStart,
        job: JobEnvironment,
        options: HookOptions,
        *,
        world_size: int | None = None,
    ) -> None:
        store = targets.out
        self.identity = identity
        self._store = store
        self._is_chief = identity.worker == _CHIEF
        self._job = job
        self._is_remote = not store.uri.startswith("file:")
        self.collections: bytes | None = None
        self.extent: tuple[object, ...] = ()
        exporter: TensorBoardExporter | None = None
        if targets.tensorboard is not None:
            worker = None if self._is_chief else identity.worker
            exporter = TensorBoardExporter(targets.tensorboard, worker=worker)
        numbers = numbering(store, identity, start)
        self.writer = StepWriter(
            store, identity, options=options, sequence=numbers.last + 1, exporter=exporter
        )
        self.writer.skip(numbers.num_lost)
        target = SpoolTarget(store.uri, identity.run_id, identity.worker)
        look = partial(report_old_spools, target, options.spool_folder)
        self.writer.housekeep("looking for old spools", look)
        self.stop_signal = StopSignal(store, identity.run_id, poll_s=options.stop_poll_s)
        if self._is_chief:
            self.writer.housekeep("looking for other runs", self._check_for_other_runs)
            self.writer.housekeep(f"removing {END_MARKER}", partial(store.delete, END_MARKER))
            self.writer.put_file(JOB_FILE, _job_file(start, job).encode())
            if world_size is not None:
                self.writer.put_file(ENVIRONMENT_FILE, partial(environment_of_process, world_size))
            self.stop_signal.start()

    def write_collections(self, collections: CollectionsFile) -> None:
        """Write the collections file if it has changed."""
        content = collections.encode()
        if content != self.collections:
            self.collections = content
            self.writer.put_file(collections_key(self.identity.worker), content)

    def close(self, *, end_of_training: bool, timeout_s: float | None) -> None:
        """Write pending data, then the end marker if training ended, and report missing data."""
        self.stop_signal.close()
        if end_of_training and self._is_chief and self._marks_the_end:
            self.writer.put_file(END_MARKER, self._end_marker, is_last=True)
        in_time = self.writer.close(timeout_s)
        counters = self.writer.counters
        waiting, lacking = counters.steps_in_spool, counters.tensorboard_steps_lost
        is_short = counters.steps_lost or counters.files_undelivered or waiting or lacking
        if in_time and not is_short:
            return
        logger.warning(
            "%s is not complete: %d steps could not be delivered and %d were dropped, %d are stored"
            "%s%s%s%s%s",
            self._store.uri,
            counters.steps_undelivered,
            counters.steps_dropped,
            counters.steps_written,
            f"; {waiting} wait in {counters.spool_folder}" if waiting else "",
            f"; {counters.files_undelivered} other files" if counters.files_undelivered else "",
            f"; TensorBoard lacks {lacking} steps" if lacking else "",
            "" if in_time else f"; gave up waiting after {timeout_s} s",
            f"; first error: {counters.first_error}" if counters.first_error else "",
        )

    def finish(
        self,
        records: Sequence[StepRecord],
        collections: CollectionsFile,
        *,
        end_of_training: bool,
        timeout_s: float | None,
    ) -> None:
        """Write the last steps of a training whose hook was deleted, and close.

        If another hook has begun a run in the folder since, that run stays unchanged.
        """
        if not self._is_folder_ours():
            logger.warning("another run took over %s", self._store.uri)
            records, end_of_training = (), False
        for record in records:
            if record.num_tensors:
                self.writer.submit(record)
        if end_of_training:
            self.write_collections(collections)
        self.close(end_of_training=end_of_training, timeout_s=timeout_s)

    def _is_folder_ours(self) -> bool:
        if not self.writer.wait_until_idle(_LOOK_TIMEOUT_S):
            return True
        try:
            found = within(_LOOK_TIMEOUT_S, lambda: run_in(self._store))
        except Exception:  # noqa: BLE001 - there is no way to report it
            return True
        return found in (None, self.identity.run_id)

    def _check_for_other_runs(self) -> None:
        """Warn if the first index file in the folder belongs to another run."""
        key = next(iter(self._store.list(INDEX_PREFIX)), None)
        if key is None:
            return
        try:
            is_ours = parse_index(self._store.get(key), file=key).run == self.identity.run_id
        except FormatError:
            is_ours = False
        if not is_ours:
            logger.warning(
                "%s has files of another run (%s). Files of the same steps are "
                "overwritten, others stay. Give every run a folder of its own.",
                self._store.uri,
                key,
            )

    @property
    def _marks_the_end(self) -> bool:
        # In a local folder of a SageMaker job, the platform writes the end marker.
        return self._is_remote or self._job.platform != "sagemaker"

    def _end_marker(self) -> bytes:
        sequences = {self.identity.worker: self.writer.submitted_sequence}
        return EndMarker(self.identity.run_id, sequences).encode()


def _job_file(start: RunStart, job: JobEnvironment) -> JobFile:
    """Return the run's job file; a continued run keeps its start time."""
    return JobFile(
        training_job_name=job.training_job_name,
        run_id=start.run_id,
        platform=job.platform,
        started_at=start.started_at or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        training_job_arn=job.training_job_arn,
        debug_rule_configurations=job.debug_rule_configurations,
        actions=job.actions,
        opt_out_of_stop=job.opt_out_of_stop,
    )
