"""The training jobs of a soak: each a thread that writes, with the hook's own sessions and writers,
what its plan says."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from hook_layer.configuration.hook_options import HookOptions
from hook_layer.configuration.job import HookTargets, JobEnvironment
from hook_layer.core.trial_session import TrialSession
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.storage.s3 import S3Store
from infra.local import LocalTarget
from tests.soak.plan import Ending, JobPlan, RunPlan, StepPlan
from tests.soak.tensors import GRADIENT, LOSS, WEIGHT, step_record

OPTIONS = HookOptions(stop_poll_s=60.0, stop="flag")
CLOSE_TIMEOUT_S = 300.0
STARTED_AT = "2026-11-20T10:00:00Z"


def root_of(target: LocalTarget, job: JobPlan) -> str:
    """Return the root of a job's trial."""
    return f"s3://{target.tensor_bucket}/{job.name}/debug-output/"


@dataclass
class WritingJob:
    """A job's training processes.

    Attributes:
        target: The deployment.
        job: The plan.
        client: Client of S3.
        begins_at: When second 0 of the plan is, on the monotonic clock.
        num_files: Index files that were written, those of a resumed run again.
    """

    target: LocalTarget
    job: JobPlan
    client: Any
    begins_at: float
    num_files: int = 0
    _sequences: dict[int, int] = field(default_factory=dict)

    def write(self) -> None:
        """Train: write all runs in their time, and let the job's end become known."""
        job = self.job
        uri = root_of(self.target, job)
        arn = self.target.start_training_job(job.name, uri) if job.on_sagemaker else None
        environment = JobEnvironment(job.name, arn, opt_out_of_stop=job.opts_out)
        for run in job.runs:
            is_marked = run is job.runs[-1] and job.ending in (Ending.MARKER, Ending.BOTH)
            self._write_run(environment, run, is_marked=is_marked)
        if job.ending in (Ending.PLATFORM, Ending.BOTH):
            self.target.finish_training_job(job.name, exit_code=0)

    def _write_run(self, environment: JobEnvironment, run: RunPlan, *, is_marked: bool) -> None:
        start = RunStart(run.run_id, STARTED_AT)
        steps = run.steps
        if run.interrupted_after is not None:
            sessions = self._sessions(environment, start)
            self._save(run, steps[: run.interrupted_after + 1], sessions)
            self._close(sessions, is_marked=False)
            behind = steps[run.goes_on_behind]
            start = RunStart(
                run.run_id,
                STARTED_AT,
                step=behind.step,
                saved_step=behind.step,
                sequence=self._sequences[behind.step],
                training_run=1,
            )
            steps = steps[run.goes_on_behind + 1 :]
        sessions = self._sessions(environment, start)
        self._save(run, steps, sessions)
        self._close(sessions, is_marked=is_marked)

    def _sessions(self, environment: JobEnvironment, start: RunStart) -> list[TrialSession]:
        store = S3Store(root_of(self.target, self.job), client=self.client)
        num_workers = self.job.num_workers
        sessions = []
        for worker in range(num_workers):
            identity = RunIdentity(start.run_id, f"worker_{worker}", num_workers)
            session = TrialSession(HookTargets(store), identity, start, environment, OPTIONS)
            session.write_collections(_collections(num_workers))
            sessions.append(session)
        return sessions

    def _save(
        self, run: RunPlan, steps: tuple[StepPlan, ...], sessions: list[TrialSession]
    ) -> None:
        for step in steps:
            time.sleep(max(self.begins_at + step.at_s - time.monotonic(), 0.0))
            for worker in sorted(step.writers):
                writer = sessions[worker].writer
                if worker in step.lossy:
                    writer.skip(1)
                writer.submit(step_record(run, step, worker))
                self.num_files += 1
            self._sequences[step.step] = sessions[0].writer.submitted_sequence

    def _close(self, sessions: list[TrialSession], *, is_marked: bool) -> None:
        for session in reversed(sessions):  # the chief is the last one, it marks the end
            if is_marked:
                session.close(end_of_training=True, timeout_s=CLOSE_TIMEOUT_S)
            else:
                session.stop_signal.close()
                session.writer.close(CLOSE_TIMEOUT_S)
            counters = session.writer.counters
            if counters.steps_lost or counters.steps_in_spool:
                raise RuntimeError(f"{self.job.name} could not store its steps: {counters}")


class WritingJobs:
    """All jobs of a soak, each in a thread.

    Args:
        target: The deployment.
        jobs: The plans.
    """

    def __init__(self, target: LocalTarget, jobs: list[JobPlan]) -> None:
        client = target.client("s3")
        begins_at = time.monotonic()
        self.errors: list[str] = []
        self._writing = [WritingJob(target, job, client, begins_at) for job in jobs]
        self._threads = [
            threading.Thread(target=self._write, args=(writing,), daemon=True)
            for writing in self._writing
        ]
        for thread in self._threads:
            thread.start()

    @property
    def num_files(self) -> int:
        """Index files written so far."""
        return sum(writing.num_files for writing in self._writing)

    @property
    def are_running(self) -> bool:
        """Whether some job is not through."""
        return any(thread.is_alive() for thread in self._threads)

    def _write(self, writing: WritingJob) -> None:
        try:
            writing.write()
        except Exception as error:  # noqa: BLE001 - told at the end, with the job's name
            self.errors.append(f"{writing.job.name} did not write to its end: {error!r}")


def _collections(num_workers: int) -> CollectionsFile:
    entries = {
        "weights": CollectionEntry("weights", tensor_names=(WEIGHT,)),
        "gradients": CollectionEntry("gradients", ("^gradient",), (GRADIENT,)),
        "losses": CollectionEntry("losses", ("Loss",), (LOSS,)),
    }
    return CollectionsFile(entries, num_workers=num_workers)
