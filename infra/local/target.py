"""The local target: runs the deployed template on this machine, with real functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.s3.models import s3_backends
from moto.sqs.models import sqs_backends
from typing_extensions import Self

from infra.local.asynchronous import QUEUE_NAME_PREFIX
from infra.local.deployment import deploy, synthesise
from infra.local.emulator import Emulator, Middleware
from infra.local.moto_patches.event_rules import run_schedules
from infra.local.moto_patches.training_jobs import announced_statuses, finish_training_job
from infra.local.poller_process import PollerProcess
from infra.local.service_environment import (
    ACCOUNT_ID,
    REGION,
    client_factory,
    service_environment,
)
from lambdas.contracts.stopping import STOP_TAG

__all__ = ["LocalTarget"]

LOCAL_CONTEXT: Mapping[str, Any] = {
    "stepwatch:batching_window_s": 0,
    "stepwatch:canary": False,
    "stepwatch:job_files_per_minute": 1_000_000,
}
"""Settings that differ from cdk.json: no wait for fuller batches, no aliases, which moto lacks, and
no limit of jobs that are fast.
"""

IDLE_CHECKS = 3  # an event may be between two functions while queues are checked
IDLE_PAUSE_S = 0.02


class LocalTarget:
    """A deployment in moto, with a poller that calls its functions.

    Only one per process, because moto's state is global.

    Attributes:
        outputs: Outputs of the stack.
        workdir: Folder for unpacked code (`code/`), the functions' log files (`logs/`) and the
            poller's (`poller.log`).
    """

    def __init__(
        self,
        context: Mapping[str, object] | None = None,
        *,
        workdir: Path,
        middleware: Middleware | None = None,
        on_progress: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Describe a target; entering it creates it.

        Args:
            context: CDK context that overrides cdk.json, e.g. `{"stepwatch:rules":
                {"VanishingGradient": {"threshold": "1e-6"}}}`.
            workdir: Folder of this target's files.
            middleware: Wraps the services, e.g. to make requests fail.
            on_progress: Called with a line about each part of the deployment when it begins.
        """
        self._middleware = middleware
        self._on_progress = on_progress
        self._context = {**LOCAL_CONTEXT, **(context or {})}
        self.workdir = workdir
        self._emulator: Emulator | None = None
        self.endpoint_url = ""
        self.outputs: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._on_progress("synthesising the CloudFormation template, starting the emulator")
        with ThreadPoolExecutor(1) as executor:
            assembly = executor.submit(synthesise, self._context)
            self._emulator = Emulator(self._middleware)
        try:
            self.endpoint_url = self._emulator.endpoint_url
            self._client = client_factory(self.endpoint_url)
            self.outputs = deploy(assembly.result(), self._client, self._on_progress)
            self._on_progress("starting the process that calls the functions")
            self.poller = PollerProcess(self.endpoint_url, self.workdir)
            self.poller.start()
        except BaseException:
            self._emulator.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.poller.stop()
        if self._emulator is not None:
            self._emulator.stop()

    @property
    def tensor_bucket(self) -> str:
        """Name of the tensor bucket."""
        return self.outputs["TensorBucketName"]

    def environment(self) -> dict[str, str]:
        """Return environment variables for a training process that uses this target."""
        return service_environment(self.endpoint_url)

    def client(self, service: str) -> Any:
        """Return a boto3 client of the emulator."""
        return self._client(service)

    def start_training_job(
        self, name: str, s3_output_path: str, *, may_be_stopped: bool = False
    ) -> str:
        """Create a training job, as the platform does before it starts a training process.

        Its hook writes to `s3_output_path`, e.g. `s3://bucket/job/debug-output`. With
        `may_be_stopped`, the tag of the job gives consent. Return the job's ARN.
        """
        created = self.client("sagemaker").create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={"TrainingImage": "local", "TrainingInputMode": "File"},
            RoleArn=f"arn:aws:iam::{ACCOUNT_ID}:role/local-training",
            OutputDataConfig={"S3OutputPath": s3_output_path},
            ResourceConfig={
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
            DebugHookConfig={"S3OutputPath": s3_output_path},
            Tags=[{"Key": STOP_TAG, "Value": s3_output_path}] if may_be_stopped else [],
        )
        return str(created["TrainingJobArn"])

    def finish_training_job(self, name: str, exit_code: int) -> str:
        """Do the platform's work after the training process of a job has ended.

        Return the terminal status: Stopped if the job was asked to stop, else Completed or Failed.
        """
        return finish_training_job(ACCOUNT_ID, REGION, name, exit_code)

    def run_schedules(self) -> None:
        """Call all scheduled functions once; the local target has no schedule of its own."""
        run_schedules(ACCOUNT_ID, REGION)

    def rule_statuses(self, job_name: str) -> list[dict[str, Any]]:
        """Return the statuses of rules that the evaluators announced of a training job."""
        return announced_statuses(ACCOUNT_ID, REGION, job_name)

    def object_arrivals(self, prefix: str) -> dict[str, datetime]:
        """Return the arrival time, to the microsecond, of tensor objects below a prefix.

        The API returns only whole seconds.
        """
        keys = s3_backends[ACCOUNT_ID]["aws"].buckets[self.tensor_bucket].keys
        return {
            key: keys[key].last_modified.replace(tzinfo=timezone.utc)
            for key in keys
            if key.startswith(prefix)
        }

    def wait_idle(self, timeout_s: float = 30) -> None:
        """Wait until no event is pending and no function runs.

        Raises:
            TimeoutError: With the non-empty queues.
        """
        ends = time.monotonic() + timeout_s
        empty_checks = 0
        while empty_checks < IDLE_CHECKS:
            waiting = self._waiting_messages()
            empty_checks = 0 if waiting else empty_checks + 1
            if waiting and time.monotonic() > ends:
                raise TimeoutError(f"after {timeout_s} s events still wait or run: {waiting}")
            time.sleep(IDLE_PAUSE_S)

    def _waiting_messages(self) -> dict[str, int]:
        """Return the number of messages, including hidden ones, in each queue of a function."""
        mappings = lambda_backends[ACCOUNT_ID][REGION].list_event_source_mappings(None, None)
        fed = {mapping.event_source_arn for mapping in mappings}
        return {
            queue.name: count
            for queue in list(sqs_backends[ACCOUNT_ID][REGION].queues.values())
            if queue.queue_arn in fed or queue.name.startswith(QUEUE_NAME_PREFIX)
            if (count := len(queue._messages))  # noqa: SLF001 - the public view omits hidden ones
        }
