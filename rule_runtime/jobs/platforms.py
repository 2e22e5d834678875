"""A job's environment in the form in which each platform takes it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rule_runtime.jobs.prepared_job import PreparedJob

__all__ = ["batch_overrides", "ecs_overrides", "kubernetes_env", "shell", "stop_tags"]

# As `lambdas.contracts.stopping` has it, which is not part of the installed package.
STOP_TAG: Final = "stepwatch:debug-output"
"""Tag by which a job names the tensors whose finding may stop it."""


def stop_tags(job: PreparedJob, place: str | None = None) -> dict[str, str]:
    """Return the tags by which a job that asks for `StopTraining` lets a deployment stop it.

    Args:
        job: The job.
        place: Folder whose findings may stop it; None for the root of its trial.
    """
    return {STOP_TAG: place or job.debug_output} if job.asks_to_stop else {}


def ecs_overrides(job: PreparedJob, container_name: str) -> dict[str, Any]:
    """Return members of ECS's RunTask request.

    Args:
        job: The job.
        container_name: Name of the container in the task definition that trains.
    """
    container = {"name": container_name, "environment": _pairs(job)}
    tags = [{"key": key, "value": value} for key, value in stop_tags(job).items()]
    return {"overrides": {"containerOverrides": [container]}, **({"tags": tags} if tags else {})}


def batch_overrides(job: PreparedJob) -> dict[str, Any]:
    """Return members of AWS Batch's SubmitJob request.

    Args:
        job: The job.
    """
    tags = stop_tags(job)
    return {
        "jobName": job.job_name,
        "containerOverrides": {"environment": _pairs(job)},
        **({"tags": tags} if tags else {}),
    }


def kubernetes_env(job: PreparedJob) -> list[dict[str, str]]:
    """Return the `env` of a container of a pod.

    Args:
        job: The job.
    """
    return _pairs(job)


def shell(job: PreparedJob) -> str:
    """Return lines that a POSIX shell evaluates to set the environment.

    Args:
        job: The job.
    """
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in job.environment.items())
    return "".join(lines)


def _pairs(job: PreparedJob) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in job.environment.items()]
