"""Keyword arguments for the SageMaker SDK's classes that start training jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rule_runtime.configuration.api_values import given
from rule_runtime.jobs.platforms import stop_tags
from rule_runtime.jobs.source_folder import REQUIREMENTS_FILE, staged_source
from rule_runtime.jobs.training_job_request import check_for_sagemaker

if TYPE_CHECKING:
    from rule_runtime.jobs.prepared_job import PreparedJob

__all__ = ["estimator_arguments", "model_trainer_arguments"]


def estimator_arguments(
    job: PreparedJob, source_dir: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Return keyword arguments for an Estimator of the SDK 2.x.

    Args:
        job: The job.
        source_dir: Folder with the training script; None where the image has the hook.

    Raises:
        ValueError: SageMaker would refuse the job.
    """
    check_for_sagemaker(job)
    checkpoint = job.checkpoint
    return {
        "base_job_name": job.job_name,
        "output_path": job.output_path,
        "environment": dict(job.environment),
        # None would switch SageMaker's own Debugger on.
        "debugger_hook_config": False,
        "disable_profiler": True,
        **given(
            checkpoint_s3_uri=checkpoint and checkpoint.s3_uri,
            checkpoint_local_path=checkpoint and checkpoint.local_path,
            source_dir=source_dir and str(staged_source(source_dir)),
            tags=[{"Key": key, "Value": value} for key, value in stop_tags(job).items()],
        ),
    }


def model_trainer_arguments(
    job: PreparedJob, source_dir: str | os.PathLike[str] | None, source_code: Mapping[str, Any]
) -> dict[str, Any]:
    """Return keyword arguments for a ModelTrainer of the SDK 3.x.

    Args:
        job: The job.
        source_dir: Folder with the training script; None where the image has the hook.
        source_code: Further members of its `SourceCode`.

    Raises:
        ValueError: SageMaker would refuse the job.
    """
    check_for_sagemaker(job)
    source = dict(source_code)
    if source_dir:
        source |= {"source_dir": str(staged_source(source_dir)), "requirements": REQUIREMENTS_FILE}
    checkpoint = job.checkpoint
    return {
        "base_job_name": job.job_name,
        "environment": dict(job.environment),
        "output_data_config": {"s3_output_path": job.output_path},
        **given(
            checkpoint_config=checkpoint
            and given(s3_uri=checkpoint.s3_uri, local_path=checkpoint.local_path),
            source_code=source,
            # The SDK appends a time to the job's name, and so to the name of the job's folder.
            tags=[
                {"key": key, "value": value}
                for key, value in stop_tags(job, job.places.parent).items()
            ],
        ),
    }
