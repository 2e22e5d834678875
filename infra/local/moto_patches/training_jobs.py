"""SageMaker in moto: training jobs that run, stop and end."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.events.models import EventsBackend
from moto.sagemaker.exceptions import ValidationError
from moto.sagemaker.models import SageMakerModelBackend, sagemaker_backends
from moto.sagemaker.responses import SageMakerResponse

from infra.local.moto_patches.event_rules import send_to_default_bus
from lambdas.contracts.events import NATIVE_SOURCE, STATUS_DETAIL_TYPE, STATUS_SOURCE

__all__ = [
    "announced_statuses",
    "finish_training_job",
    "patch_announced_statuses",
    "patch_training_job_life",
]

TERMINAL_STATUSES = frozenset({"Completed", "Failed", "Stopped"})

_create_training_job = SageMakerModelBackend.create_training_job
_respond_to_create = SageMakerResponse.create_training_job
_describe_training_job = SageMakerModelBackend.describe_training_job
_put_events = EventsBackend.put_events


@cache
def patch_training_job_life() -> None:
    """Let a training job run until it is finished or stopped, and send events for both.

    Without it a job is Completed as soon as it is created, StopTrainingJob does not exist, and
    DescribeTrainingJob does not return the job's Environment.
    """

    def create_training_job(self: Any, **arguments: Any) -> Any:
        if arguments["training_job_name"] in self.training_jobs:
            raise ResourceInUseError(arguments["training_job_name"])
        job = _create_training_job(self, **arguments)
        job.training_end_time = None
        job.final_metric_data_list = None
        _enter(self, job, "InProgress", "Training")
        return job

    def respond_to_create(self: Any) -> Any:
        answer = _respond_to_create(self)
        job = self.sagemaker_backend.training_jobs[self._get_param("TrainingJobName")]
        job.environment = self._get_param("Environment") or {}
        return answer

    def stop_training_job(self: Any) -> Any:
        backend = self.sagemaker_backend
        job = backend.training_jobs.get(self._get_param("TrainingJobName"))
        if job is None:
            raise ValidationError(message="Requested resource not found.")
        if job.training_job_status in TERMINAL_STATUSES:
            raise ValidationError(
                message="The request was rejected because the training job is in status "
                f"{job.training_job_status}."
            )
        if job.training_job_status != "Stopping":
            _enter(backend, job, "Stopping", "Stopping")
        return ActionResult({})

    SageMakerModelBackend.create_training_job = create_training_job
    SageMakerResponse.create_training_job = respond_to_create
    SageMakerResponse.stop_training_job = stop_training_job


@cache
def patch_announced_statuses() -> None:
    """Record the statuses that Stepwatch's evaluators announce, for `announced_statuses`.

    DescribeTrainingJob does not return them, as in SageMaker: it knows only rules of its own.
    Without it tests could not read what was announced.
    """

    def put_events(self: Any, events: list[dict[str, Any]]) -> Any:
        for event in events:
            if (event.get("Source"), event.get("DetailType")) == (
                STATUS_SOURCE,
                STATUS_DETAIL_TYPE,
            ):
                _record_statuses(self, event)
        return _put_events(self, events)

    def describe_training_job(self: Any, training_job_name: str) -> dict[str, Any]:
        described: dict[str, Any] = dict(_describe_training_job(self, training_job_name))
        described.pop("RuleStatuses", None)
        return described

    EventsBackend.put_events = put_events
    SageMakerModelBackend.describe_training_job = describe_training_job


class ResourceInUseError(ValidationError):  # type: ignore[misc]
    """A training job with this name exists already."""

    code = "ResourceInUse"

    def __init__(self, name: str) -> None:
        super().__init__(message=f"Training job names must be unique: {name} exists already.")


def announced_statuses(account_id: str, region: str, name: str) -> list[dict[str, Any]]:
    """Return the last announced status of each rule of a job, in the order of the first ones.

    Raises:
        KeyError: The job does not exist.
    """
    job = sagemaker_backends[account_id][region].training_jobs[name]
    return list(getattr(job, "rule_statuses", {}).values())


def finish_training_job(account_id: str, region: str, name: str, exit_code: int) -> str:
    """Do the platform's work after a training process has ended; return the terminal status.

    The status is Stopped if the job was asked to stop, for any exit status.

    Raises:
        ValueError: The job does not exist, or has ended already.
    """
    backend = sagemaker_backends[account_id][region]
    job = backend.training_jobs.get(name)
    if job is None or job.training_job_status in TERMINAL_STATUSES:
        status = "missing" if job is None else job.training_job_status
        raise ValueError(f"training job {name} cannot be finished: it is {status}")
    if job.training_job_status == "Stopping":
        status = "Stopped"
    else:
        status = "Completed" if exit_code == 0 else "Failed"
    if status == "Failed":
        job.failure_reason = f"AlgorithmError: the training process ended with {exit_code}"
    job.training_end_time = utcnow()
    _enter(backend, job, status, status)
    return status


def _enter(backend: Any, job: Any, status: str, secondary_status: str) -> None:
    moment = utcnow()
    job.training_job_status = status
    job.secondary_status = secondary_status
    job.last_modified_time = moment
    job.secondary_status_transitions[-1]["EndTime"] = moment
    job.secondary_status_transitions.append(
        {"Status": secondary_status, "StartTime": moment, "StatusMessage": f"{status} locally"}
    )
    detail = {
        "TrainingJobName": job.training_job_name,
        "TrainingJobArn": job.arn,
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary_status,
        "CreationTime": _milliseconds(job.creation_time),
        "LastModifiedTime": _milliseconds(moment),
    }
    event = {
        "id": str(uuid.uuid4()),
        "detail-type": STATUS_DETAIL_TYPE,
        "source": NATIVE_SOURCE,
        "resources": [job.arn],
        "detail": detail,
    }
    send_to_default_bus(backend.account_id, backend.region_name, event)


def _record_statuses(events_backend: Any, event: Mapping[str, Any]) -> None:
    backend = sagemaker_backends[events_backend.account_id][events_backend.region_name]
    try:
        detail = json.loads(event["Detail"])
    except (KeyError, ValueError):
        return  # PutEvents returns the errors of an entry
    job = backend.training_jobs.get(detail.get("TrainingJobName"))
    if job is None:
        return  # a job outside of SageMaker
    statuses = dict(getattr(job, "rule_statuses", {}))
    for status in detail.get("DebugRuleEvaluationStatuses", []):
        seconds = status.get("LastModifiedTime", 0) / 1000
        modified = dt.datetime.fromtimestamp(seconds, dt.timezone.utc)
        statuses[status.get("RuleConfigurationName")] = {**status, "LastModifiedTime": modified}
    job.rule_statuses = statuses


def _milliseconds(moment: dt.datetime) -> int:
    # moto's times are in UTC, but without a time zone
    return int(moment.replace(tzinfo=dt.timezone.utc).timestamp() * 1000)
