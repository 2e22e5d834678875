"""Asking a job to stop: SageMaker, and the loop that trains."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.job_file import StopFile
from rule_runtime.jobs.native_job import stop_training_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hook_layer.format.job_file import JobFile
    from rule_runtime.jobs.aws import Aws
    from rule_runtime.jobs.job_files import JobFiles

__all__ = ["ask_to_stop"]

_REASON: Final = "its owner called DebugJob.stop()"


def ask_to_stop(
    name: str,
    files: JobFiles,
    known: tuple[JobFile | None, Mapping[str, Any] | None],
    aws: Aws,
    now: float,
) -> None:
    """Ask a job to stop: SageMaker by StopTrainingJob, then its loop by `stop.json`.

    Args:
        name: Name of the job.
        files: Its files.
        known: The run's `job.json`, and what SageMaker says of the job.
        aws: The account.
        now: Seconds since the epoch.

    Raises:
        ValueError: The job has not begun, and SageMaker does not run it.
        AwsRequestError: SageMaker refuses.
        StorageError: `stop.json` cannot be written.
    """
    job, described = known
    if described is not None:
        stop_training_job(aws, name)
    elif job is None:
        raise ValueError(
            f"{name} has not begun, so nobody would see that it is to stop: there is no job.json "
            f"in {files.root.uri}"
        )
    if job is None or files.life(job).has_ended:
        return
    requested_at = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds")
    files.ask_to_stop(StopFile(_REASON, requested_at, run_id=job.run_id))
