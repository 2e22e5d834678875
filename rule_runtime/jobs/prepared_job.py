"""A prepared job: what its owner gives to the platform that runs it."""

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
from rule_runtime.jobs.deployment import DEFAULT_STAGE
from rule_runtime.jobs.job_paths import JobPaths, tensorboard_root
from rule_runtime.jobs.source_folder import REQUIREMENTS_FILE, staged_source
from rule_runtime.jobs.training_job_request import check_for_sagemaker, merged_request

__all__ = ["Checkpoint", "PreparedJob"]

# As `lambdas.contracts.stopping` has it, which is not part of the installed package.
STOP_TAG: Final = "stepwatch:debug-output"
"""Tag by which a job names the tensors whose finding may stop it."""


@dataclass(frozen=True)
class Checkpoint:
    """Where checkpoints are.

    Attributes:
        s3_uri: In S3; None where nothing keeps them there.
        local_path: In the training container; None for the platform's default.
    """

    s3_uri: str | None = None
    local_path: str | None = None

    @classmethod
    def of(cls, s3_uri: str | None, local_path: str | None) -> Checkpoint | None:
        """Return the checkpoints' places, None where neither is given."""
        return cls(s3_uri, local_path) if s3_uri or local_path else None

    def to_json(self) -> dict[str, Any]:
        """Return `CheckpointConfig` of CreateTrainingJob."""
        return given(S3Uri=self.s3_uri, LocalPath=self.local_path)


@dataclass(frozen=True)
class PreparedJob:
    """A job whose configuration is stored; `prepare` makes it.

    Attributes:
        job_name: Name of the job.
        output_path: Where its output goes below.
        places: The job's folder, and the root of its trial.
        configuration: What the hook saves and which rules judge it, custom rules as they were
            uploaded.
        environment: Environment variables that a training process needs, on any platform.
        checkpoint: Where its checkpoints are.
        prepared_at: Seconds since the epoch.
        stage: The deployment that judges the job.
        session: The boto3 session that prepared it; None for a job in folders.
        earlier_run: RunId of a run that was in the folder before.
        warnings: What rules cannot have as the hook is configured, names of collections that are
            probably slips of the pen, and what else is other than somebody may expect. Each was
            logged, too.
        asks_to_stop: Whether an action of the job is `StopTraining`. Such a job carries a tag that
            lets a deployment stop it.
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
    asks_to_stop: bool = False

    @property
    def debug_output(self) -> str:
        """Where tensors go, ending in "/"."""
        return self.places.root

    @property
    def tensorboard_output(self) -> str | None:
        """Where TensorBoard's files go, ending in "/"; None if there are none."""
        board = self.configuration.tensorboard
        if board is None:
            return None
        return tensorboard_root(board.s3_output_path or self.output_path, self.job_name)

    def job(self, name: str | None = None) -> DebugJob:
        """Return the job as its owner sees it from now on.

        Args:
            name: Name under which it was started, if different. ModelTrainer appends a time to the
                name; so does Estimator unless `fit` gets the name.
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
        """Return a CreateTrainingJob request with what belongs to this job.

        SageMaker's own Debugger stays off: it takes no new customers, and the hook writes to S3
        itself. So the request has no `DebugHookConfig`, `DebugRuleConfigurations` and
        `TensorBoardOutputConfig`.

        Args:
            request: The request without them; name, output path and checkpoints may be missing.

        Raises:
            ValueError: It says something else than this job, or what SageMaker would refuse.
        """
        return merged_request(self, request)

    def estimator_arguments(
        self, source_dir: str | os.PathLike[str] | None = None
    ) -> dict[str, Any]:
        """Return keyword arguments for an Estimator of the SageMaker SDK 2.x.

        Start it by `estimator.fit(..., job_name=prepared.job_name)`.

        Args:
            source_dir: Folder with the training script: the arguments then name a copy of it in
                which the hook's package is, and a `requirements.txt` that installs what that needs.
                None for images that have it installed.

        Raises:
            ValueError: SageMaker would refuse the job.
        """
        check_for_sagemaker(self)
        checkpoint = self.checkpoint
        return {
            "base_job_name": self.job_name,
            "output_path": self.output_path,
            "environment": dict(self.environment),
            # None would switch SageMaker's own Debugger on.
            "debugger_hook_config": False,
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

        It chooses the job's name itself, `{job_name}-{time}`; `prepared.job(name)` follows that.

        Args:
            source_dir: As for `estimator_arguments`.
            **source_code: Further members of `SourceCode`, e.g. `entry_script="train.py"`.

        Raises:
            ValueError: SageMaker would refuse the job.
        """
        check_for_sagemaker(self)
        if source_dir:
            source_code["source_dir"] = str(staged_source(source_dir))
            source_code["requirements"] = REQUIREMENTS_FILE
        checkpoint = self.checkpoint
        # The SDK appends a time to the job's name, and so to the name of the job's folder.
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
        """Return members of ECS's RunTask request.

        Args:
            container_name: Name of the container in the task definition that trains.
        """
        container = {"name": container_name, "environment": self.kubernetes_env()}
        return {
            "overrides": {"containerOverrides": [container]},
            **given(tags=_lower_case_tags(self.stop_tags())),
        }

    def batch_overrides(self) -> dict[str, Any]:
        """Return members of AWS Batch's SubmitJob request."""
        return {
            "jobName": self.job_name,
            "containerOverrides": {"environment": self.kubernetes_env()},
            **given(tags=self.stop_tags()),
        }

    def kubernetes_env(self) -> list[dict[str, str]]:
        """Return the `env` of a container of a pod."""
        return [{"name": name, "value": value} for name, value in self.environment.items()]

    def shell(self) -> str:
        """Return lines that a POSIX shell evaluates to set the environment."""
        variables = self.environment.items()
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables)

    def stop_tags(self, place: str | None = None) -> dict[str, str]:
        """Return the tags by which a job that asks for `StopTraining` lets a deployment stop it.

        Args:
            place: Folder whose findings may stop it; None for the root of its trial.
        """
        return {STOP_TAG: place or self.debug_output} if self.asks_to_stop else {}

    def _hook_output(self) -> str:
        hook = self.configuration.hook
        return (hook and hook.s3_output_path) or self.output_path


def _lower_case_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]
