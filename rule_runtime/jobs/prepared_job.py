"""A prepared job, and its parameters for the platform that runs it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.configuration.configuration_file import OWN_VARIABLE
from rule_runtime.configuration.api_values import given
from rule_runtime.configuration.debug_configuration import DebugConfiguration
from rule_runtime.jobs.aws import Session
from rule_runtime.jobs.debug_job import DebugJob
from rule_runtime.jobs.debugger_off import DebuggerOff
from rule_runtime.jobs.deployment import DEFAULT_STAGE
from rule_runtime.jobs.job_files import JobPaths, tensorboard_root
from rule_runtime.jobs.source_folder import REQUIREMENTS_FILE, staged_source
from rule_runtime.jobs.training_job_request import check_for_sagemaker, merged_request

__all__ = ["Checkpoint", "PreparedJob"]

# The same as in `lambdas.contracts.stopping`, which is not part of the installed package.
STOP_TAG: Final = "stepwatch:debug-output"
"""Tag of a job with the URI of the tensors whose findings may stop it."""


@dataclass(frozen=True)
class Checkpoint:
    """Locations of checkpoints.

    Attributes:
        s3_uri: URI in S3; None if checkpoints are not kept there.
        local_path: Path in the training container; None for the platform's default.
    """

    s3_uri: str | None = None
    local_path: str | None = None

    @classmethod
    def of(cls, s3_uri: str | None, local_path: str | None) -> Checkpoint | None:
        """Return the locations; None if neither is given."""
        return cls(s3_uri, local_path) if s3_uri or local_path else None

    def to_json(self) -> dict[str, Any]:
        """Return `CheckpointConfig` of CreateTrainingJob."""
        return given(S3Uri=self.s3_uri, LocalPath=self.local_path)


@dataclass(frozen=True)
class PreparedJob:
    """A job with a stored configuration; created by `prepare`.

    Attributes:
        job_name: Name of the job.
        output_path: Prefix of the job's output.
        places: Paths of the job's folder and its trial.
        configuration: What the hook saves and which rules evaluate it; custom rules as uploaded.
        environment: Environment variables for training processes on any platform.
        checkpoint: Locations of its checkpoints.
        prepared_at: Seconds since the epoch.
        stage: Stage of the deployment that evaluates the job.
        session: The boto3 session that prepared it; None for a local job.
        earlier_run: RunId of an earlier run in the folder.
        warnings: Warnings about data that rules lack, probably misspelled collections, and
            differences from SageMaker Debugger. Each was logged, too.
        requests_stop: Whether any action is `StopTraining`. The tag of such a job allows a
            deployment to stop it.
    """

    job_name: str
    output_path: str
    places: JobPaths
    configuration: DebugConfiguration
    environment: Mapping[str, str]
    checkpoint: Checkpoint | None = None
    prepared_at: float = 0.0
    stage: str = DEFAULT_STAGE
    session: Session | None = field(default=None, repr=False, compare=False)
    earlier_run: str | None = None
    warnings: tuple[str, ...] = ()
    requests_stop: bool = False

    @property
    def debug_output(self) -> str:
        """URI of the tensors, ending in "/"."""
        return self.places.root

    @property
    def tensorboard_output(self) -> str | None:
        """URI of the TensorBoard files, ending in "/"; None if there are none."""
        board = self.configuration.tensorboard
        if board is None:
            return None
        return tensorboard_root(board.s3_output_path or self.output_path, self.job_name)

    def job(self, name: str | None = None) -> DebugJob:
        """Return the started job, to follow it.

        Args:
            name: Name under which it was started, if different. ModelTrainer appends a time to the
                name. Estimator does so, too, unless you pass the name to `fit`.
        """
        is_other = name is not None and name != self.job_name
        return DebugJob(
            name or self.job_name,
            self._hook_output(),
            configuration=self.environment.get(OWN_VARIABLE),
            earlier_run=None if is_other else self.earlier_run,
            rule_sources=[rule.source for rule in self.configuration.rules if rule.source],
            stage=self.stage,
            session=self.session,
        )

    def training_job_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a CreateTrainingJob request with the members of this job.

        SageMaker Debugger stays off, because it takes no new customers and the hook itself writes
        to S3. So the request has no `DebugHookConfig`, `DebugRuleConfigurations` and
        `TensorBoardOutputConfig`.

        Args:
            request: The rest of the request; name, output path and checkpoints may be missing.

        Raises:
            ValueError: The request contradicts this job, or SageMaker would refuse it.
        """
        return merged_request(self, request)

    def estimator_arguments(
        self, source_dir: str | os.PathLike[str] | None = None
    ) -> dict[str, Any]:
        """Return keyword arguments for an Estimator of the SageMaker SDK 2.x.

        Start it with `estimator.fit(..., job_name=prepared.job_name)`.

        Args:
            source_dir: Folder with the training script. The arguments then name a copy that
                contains the hook's package and a `requirements.txt` for its dependencies. None for
                images with the package installed.

        Raises:
            ValueError: SageMaker would refuse the job.
        """
        check_for_sagemaker(self)
        checkpoint = self.checkpoint
        return {
            "base_job_name": self.job_name,
            "output_path": self.output_path,
            "environment": dict(self.environment),
            "debugger_hook_config": DebuggerOff(self._hook_output()),
            "disable_profiler": True,
            **given(
                checkpoint_s3_uri=checkpoint and checkpoint.s3_uri,
                checkpoint_local_path=checkpoint and checkpoint.local_path,
                source_dir=source_dir and str(staged_source(source_dir)),
                tags=[{"Key": key, "Value": value} for key, value in self.stop_tags().items()],
            ),
        }

    def model_trainer_arguments(
        self, source_dir: str | os.PathLike[str] | None = None, **source_code: Any
    ) -> dict[str, Any]:
        """Return keyword arguments for a ModelTrainer of the SageMaker SDK 3.x.

        ModelTrainer names the job `{job_name}-{time}`; pass that name to `prepared.job(name)`.

        Args:
            source_dir: As for `estimator_arguments`.
            **source_code: Further members of `SourceCode`, such as `entry_script="train.py"`.

        Raises:
            ValueError: SageMaker would refuse the job.
        """
        check_for_sagemaker(self)
        if source_dir:
            source_code["source_dir"] = str(staged_source(source_dir))
            source_code["requirements"] = REQUIREMENTS_FILE
        checkpoint = self.checkpoint
        # The SDK appends a time to the job's name, and so to the job's folder.
        tags = self.stop_tags(self.places.parent)
        return {
            "base_job_name": self.job_name,
            "environment": dict(self.environment),
            "output_data_config": {"s3_output_path": self.output_path},
            **given(
                checkpoint_config=checkpoint
                and given(s3_uri=checkpoint.s3_uri, local_path=checkpoint.local_path),
                source_code=source_code,
                tags=_lower_case_tags(tags),
            ),
        }

    def ecs_overrides(self, container_name: str) -> dict[str, Any]:
        """Return parameters of ECS's RunTask request.

        Args:
            container_name: Name of the training container in the task definition.
        """
        container = {"name": container_name, "environment": self.kubernetes_env()}
        return {
            "overrides": {"containerOverrides": [container]},
            **given(tags=_lower_case_tags(self.stop_tags())),
        }

    def batch_overrides(self) -> dict[str, Any]:
        """Return parameters of AWS Batch's SubmitJob request."""
        return {
            "jobName": self.job_name,
            "containerOverrides": {"environment": self.kubernetes_env()},
            **given(tags=self.stop_tags()),
        }

    def kubernetes_env(self) -> list[dict[str, str]]:
        """Return the `env` of a container of a pod."""
        return [{"name": name, "value": value} for name, value in self.environment.items()]

    def shell(self) -> str:
        """Return POSIX shell lines that set the environment."""
        variables = self.environment.items()
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables)

    def stop_tags(self, place: str | None = None) -> dict[str, str]:
        """Return the tags that allow a deployment to stop a job with `StopTraining`.

        Args:
            place: Folder whose findings may stop it; None for the trial's root.
        """
        return {STOP_TAG: place or self.debug_output} if self.requests_stop else {}

    def _hook_output(self) -> str:
        hook = self.configuration.hook
        return (hook and hook.s3_output_path) or self.output_path


def _lower_case_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]
