"""Jobs of AWS Batch and tasks of ECS, which are stopped only with the consent of their tag."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from botocore.exceptions import ClientError

__all__ = ["BatchJobs", "ContainerJob", "ContainerJobs", "EcsTasks", "platform_of"]

_BATCH_ARN: Final = re.compile(
    r"arn:[a-z-]+:batch:[a-z0-9-]+:[0-9]{12}:job/(?P<id>[0-9A-Za-z:-]{1,64})"
)
_ECS_ARN: Final = re.compile(
    r"arn:[a-z-]+:ecs:[a-z0-9-]+:[0-9]{12}:task/"
    r"(?P<cluster>[0-9A-Za-z_-]{1,255})/(?P<id>[0-9A-Za-z-]{1,64})"
)
_MAX_REASON: Final = 255
_NO_SUCH_JOB: Final = frozenset(
    {"ClientException", "ClusterNotFoundException", "InvalidParameterException"}
)


@dataclass(frozen=True)
class ContainerJob:
    """A job on its platform.

    Attributes:
        arn: Its ARN.
        tags: Its tags.
        has_ended: True if it no longer runs.
    """

    arn: str
    tags: Mapping[str, str]
    has_ended: bool


class ContainerJobs(Protocol):
    """The jobs of one platform."""

    def find(self, arn: str) -> ContainerJob | None:
        """Return a job of this account and Region; None if it does not exist."""
        ...

    def stop(self, arn: str, reason: str) -> None:
        """Ask the platform to stop a job."""
        ...


def platform_of(arn: str | None) -> str | None:
    """Return the platform of an ARN: `batch`, `ecs`, or None for others."""
    if arn is None:
        return None
    if _BATCH_ARN.fullmatch(arn):
        return "batch"
    return "ecs" if _ECS_ARN.fullmatch(arn) else None


class BatchJobs:
    """The jobs of AWS Batch.

    Args:
        client: Returns the client.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def find(self, arn: str) -> ContainerJob | None:
        """Return a job of this account and Region; None if it does not exist."""
        answer = _answer(lambda: self._client().describe_jobs(jobs=[_part(_BATCH_ARN, arn, "id")]))
        for job in answer.get("jobs", []):
            if job.get("jobArn") == arn:
                return ContainerJob(
                    arn, job.get("tags", {}), job["status"] in {"SUCCEEDED", "FAILED"}
                )
        return None

    def stop(self, arn: str, reason: str) -> None:
        """Terminate a job of Batch; no effect on an ended job."""
        job_id = _part(_BATCH_ARN, arn, "id")
        self._client().terminate_job(jobId=job_id, reason=reason[:_MAX_REASON])


class EcsTasks:
    """The tasks of ECS.

    Args:
        client: Returns the client.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def find(self, arn: str) -> ContainerJob | None:
        """Return a task of this account and Region; None if it does not exist."""
        cluster = _part(_ECS_ARN, arn, "cluster")
        answer = _answer(
            lambda: self._client().describe_tasks(cluster=cluster, tasks=[arn], include=["TAGS"])
        )
        for task in answer.get("tasks", []):
            if task.get("taskArn") == arn:
                tags = {tag["key"]: tag["value"] for tag in task.get("tags", [])}
                return ContainerJob(arn, tags, task["lastStatus"] == "STOPPED")
        return None

    def stop(self, arn: str, reason: str) -> None:
        """Stop a task of ECS."""
        cluster = _part(_ECS_ARN, arn, "cluster")
        self._client().stop_task(cluster=cluster, task=arn, reason=reason[:_MAX_REASON])


def _part(pattern: re.Pattern[str], arn: str, name: str) -> str:
    match = pattern.fullmatch(arn)
    if match is None:
        raise ValueError(f"{arn!r} is not of this platform")
    return match[name]


def _answer(request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return request()
    except ClientError as error:
        if error.response["Error"]["Code"] in _NO_SUCH_JOB:
            return {}
        raise
