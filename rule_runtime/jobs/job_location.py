"""Finds the location of a job's files by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hook_layer.configuration.configuration_file import MAX_CONFIGURATION_BYTES, OWN_VARIABLE
from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import load_object
from hook_layer.storage.base import ObjectNotFoundError
from rule_runtime.jobs.job_paths import JobPaths
from rule_runtime.jobs.native_job import described_training_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from hook_layer.storage.base import Store
    from rule_runtime.jobs.aws import Aws

__all__ = ["find_location", "read_configuration"]


def find_location(name: str, output_path: str | None, aws: Aws) -> tuple[JobPaths, str | None]:
    """Return the paths of a job's files, and the URI of the hook's configuration if elsewhere.

    Args:
        name: Name of the job.
        output_path: Output path as prepared; None to ask SageMaker.
        aws: The account and Region.

    Raises:
        ValueError: SageMaker has no such job, the job has no hook, or SageMaker cannot be asked;
            the message says what to set.
        AwsRequestError: SageMaker does not answer.
        StorageError: The job's configuration cannot be read.
    """
    if output_path is not None:
        return JobPaths.of(output_path, name), None
    described = described_training_job(aws, name, is_needed=True)
    if described is None:
        raise ValueError(
            f"SageMaker runs no job {name!r} in {aws.region}: give output_path, the folder or S3 "
            "URI below which the job's output goes"
        )
    uri = (described.get("Environment") or {}).get(OWN_VARIABLE)
    stored = None if uri is None else read_configuration(uri, aws.open_store)
    hook = (stored if stored is not None else described).get("DebugHookConfig")
    path = (hook or {}).get("S3OutputPath")
    if path is None:
        raise ValueError(
            f"the training job {name} names no output of a hook, neither by {OWN_VARIABLE} in its "
            "Environment nor by DebugHookConfig: give output_path"
        )
    return JobPaths.of(path, name), uri


def read_configuration(uri: str, open_store: Callable[[str], Store]) -> Mapping[str, Any] | None:
    """Return a hook's configuration; None if it does not exist.

    Args:
        uri: Its URI.
        open_store: Returns the store at a folder.

    Raises:
        FormatError: It is not a JSON object.
        StorageError: It cannot be read.
    """
    folder, _, name = uri.rpartition("/")
    try:
        data = open_store(folder).get(name, 0, MAX_CONFIGURATION_BYTES + 1)
    except ObjectNotFoundError:
        return None
    return load_object(data, file=uri, error=FormatError, max_bytes=MAX_CONFIGURATION_BYTES)
