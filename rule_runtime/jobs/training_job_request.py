"""Adds the members of a prepared job to a CreateTrainingJob request."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.jobs.job_files import is_in_s3

if TYPE_CHECKING:
    from rule_runtime.jobs.prepared_job import PreparedJob

__all__ = ["check_for_sagemaker", "merged_request"]

_OF_DEBUGGER: Final = ("DebugHookConfig", "DebugRuleConfigurations", "TensorBoardOutputConfig")
_MAX_VARIABLES: Final = 100
_MAX_VALUE: Final = 512
"""Maximum number of variables, and length of a value, in `Environment` of CreateTrainingJob."""
_TAG_VALUE: Final = re.compile(r"[A-Za-z0-9 _.:/=+@-]{0,256}")


def merged_request(job: PreparedJob, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with the job's name, environment, output path, checkpoints and tag.

    Args:
        job: The job.
        request: The rest of the request; it is not modified.

    Raises:
        ValueError: The request contradicts the job, or SageMaker would refuse it.
    """
    check_for_sagemaker(job)
    for member in _OF_DEBUGGER:
        if member in request:
            raise ValueError(
                f"{member} is in the request, and SageMaker's own Debugger takes no new customers: "
                "give prepare() its content (hook_config, rules, tensorboard), and leave it out"
            )
    merged = copy.deepcopy(dict(request))
    _put(merged, "TrainingJobName", job.job_name)
    variables = dict(merged.get("Environment") or {})
    for name, value in job.environment.items():
        _put(variables, name, value, "Environment.")
    if len(variables) > _MAX_VARIABLES:
        raise ValueError(
            f"Environment has {len(variables)} members; the API takes {_MAX_VARIABLES}"
        )
    merged["Environment"] = variables
    merged.setdefault("OutputDataConfig", {}).setdefault("S3OutputPath", job.output_path)
    if job.checkpoint is not None:
        _put(merged, "CheckpointConfig", job.checkpoint.to_json())
    if own := job.stop_tags():
        others = [tag for tag in merged.get("Tags") or () if tag["Key"] not in own]
        merged["Tags"] = others + [{"Key": key, "Value": value} for key, value in own.items()]
    return merged


def check_for_sagemaker(job: PreparedJob) -> None:
    """Check that SageMaker accepts a job.

    Raises:
        ValueError: SageMaker does not accept it.
    """
    if not is_in_s3(job.output_path):
        raise ValueError(
            f"output_path is {job.output_path!r}: a training job of SageMaker writes to S3, give a "
            "URI like s3://bucket/output"
        )
    if job.checkpoint is not None and not job.checkpoint.s3_uri:
        raise ValueError(
            f"checkpoint_local_path is {job.checkpoint.local_path!r} and checkpoint_s3_uri is "
            "missing: SageMaker keeps checkpoints in S3"
        )
    for name, value in job.environment.items():
        if len(value) > _MAX_VALUE:
            raise ValueError(
                f"Environment.{name} has {len(value)} characters, {value!r:.60}; the API takes at "
                f"most {_MAX_VALUE}: give a shorter output_path"
            )
    for value in job.stop_tags().values():
        if not _TAG_VALUE.fullmatch(value):
            raise ValueError(
                f"a job with StopTraining has a tag, and a tag cannot contain {value!r}: "
                "give an output_path of at most 150 letters, digits and _ . : / = + @ -"
            )


def _put(members: dict[str, Any], name: str, value: Any, path: str = "") -> None:
    """Set a member; fails if it has another value."""
    if members.get(name) not in (None, value):
        raise ValueError(
            f"{path}{name} is {members[name]!r} in the request, and {value!r} was prepared: leave "
            "it out of the request, or prepare the job with it"
        )
    members[name] = value
