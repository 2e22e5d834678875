"""Training jobs of SageMaker: their descriptions, and requests to stop them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from lambdas.stop_job.job_stage import Life

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

    from lambdas.shared.observability import Telemetry

__all__ = ["SageMakerJobs"]

_ALREADY_ENDING: Final = re.compile(
    r"training job is in status (Completed|Failed|Stopped|Stopping|Deleting)\b"
)
_ENDING: Final = "Stopping"
_ENDED: Final = frozenset({"Completed", "Failed", "Stopped", "Deleting"})
_INVALID: Final = "ValidationException"  # also the error for a missing job
_DENIED: Final = "AccessDeniedException"


class SageMakerJobs:
    """The training jobs of the account.

    Args:
        client: Returns the client.
        telemetry: Logs and metrics.
    """

    def __init__(self, client: Callable[[], SageMakerClient], telemetry: Telemetry) -> None:
        self._client = client
        self._telemetry = telemetry

    def stop(self, name: str) -> None:
        """Stop a job of SageMaker, unless it is already ending.

        Raises:
            ClientError: SageMaker rejected the request for another reason.
        """
        try:
            self._client().stop_training_job(TrainingJobName=name)
        except ClientError as error:
            details = error.response["Error"]
            ending = _ALREADY_ENDING.search(details.get("Message", ""))
            if details.get("Code") != _INVALID or ending is None:
                raise
            self._telemetry.info("the job ends already", training_job_status=ending[1])

    def can_write(self, name: str, root_uri: str) -> bool:
        """Return whether a root may contain a job's tensors.

        A job with `DebugHookConfig` writes below its `S3OutputPath` or its checkpoint path. For
        other jobs, and without permission to describe the job, the result is True, because the root
        contains the job's name.

        Args:
            name: Name of the job.
            root_uri: The registered root, ending in "/".
        """
        description = self._describe(name) or {}
        output = _member(description, "DebugHookConfig", "S3OutputPath")
        if output is None:
            return True
        places = (output, _member(description, "CheckpointConfig", "S3Uri"))
        return any(root_uri.startswith(place.rstrip("/") + "/") for place in places if place)

    def tags(self, name: str) -> Mapping[str, str]:
        """Return the tags of a job; empty if it does not exist or must not be described.

        Raises:
            ClientError: SageMaker is temporarily unavailable.
        """
        arn = (self._describe(name) or {}).get("TrainingJobArn")
        if not arn:
            return {}
        try:
            pages = self._client().get_paginator("list_tags").paginate(ResourceArn=arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
        except ClientError as error:
            if error.response["Error"].get("Code") != _DENIED:
                raise
            self._telemetry.info("the function may not list tags of training jobs")
            return {}

    def life(self, name: str) -> Life | None:
        """Return the stage of a job; None without permission."""
        description = self._describe(name)
        if description is None:
            return None
        status = description.get("TrainingJobStatus")
        if status in _ENDED:
            return Life.ENDED
        return Life.ENDING if status == _ENDING else Life.RUNNING

    def _describe(self, name: str) -> dict[str, Any] | None:
        """Return the job's description; one with status `Deleting` if missing, None if not allowed.

        Raises:
            ClientError: SageMaker is temporarily unavailable.
        """
        try:
            return dict(self._client().describe_training_job(TrainingJobName=name))
        except ClientError as error:
            code = error.response["Error"].get("Code")
            if code == _INVALID:
                return {"TrainingJobStatus": "Deleting"}
            if code != _DENIED:
                raise
            self._telemetry.info("the function may not describe training jobs")
            return None


def _member(description: dict[str, Any], group: str, name: str) -> str | None:
    value = (description.get(group) or {}).get(name)
    return value if isinstance(value, str) and value else None
