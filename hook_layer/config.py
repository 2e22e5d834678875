"""The job that a hook runs in, and where it writes.

`hook_layer.configuration.places` finds the latter out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hook_layer.format.paths import job_name_of
from hook_layer.storage.base import Store, path_or_uri
from hook_layer.storage.mirror import reopened

__all__ = [
    "CheckpointConfig",
    "HookTargets",
    "JobConfiguration",
    "JobEnvironment",
    "OutputPaths",
    "hook_enabled",
    "is_training_job",
    "job_name",
]

_OFF: Final = frozenset(("0", "false", "no", "off"))


def hook_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether hooks do anything: `USE_SMDEBUG=0` (or `false`) switches all of them off."""
    return environ.get("USE_SMDEBUG", "").strip().lower() not in _OFF


def is_training_job(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a platform named the job, by `TRAINING_JOB_NAME`, as SageMaker always does."""
    return bool(environ.get("TRAINING_JOB_NAME", "").strip())


@dataclass(frozen=True)
class OutputPaths:
    """`S3OutputPath` (for checkpoints: `S3Uri`) and `LocalPath`, as CreateTrainingJob has them."""

    s3: str | None = None
    local: str | None = None


@dataclass(frozen=True)
class JobConfiguration:
    """What a configuration file says of the job, whichever framework its hook is for.

    Attributes:
        source: Name of the file, for messages; empty without one.
        writes_to_s3: Whether the hook itself writes to `S3OutputPath`, or leaves that to an agent.
        training_job_name: The job's name.
        debug_output: Where tensors go.
        tensorboard_output: Where TensorBoard's files go.
        checkpoint: Where checkpoints are.
        debug_rule_configurations: The rules that the job asks for; None: the deployed ones.
        actions: What must be done on a finding.
        opt_out_of_stop: Whether the job must never be stopped.
    """

    source: str = ""
    writes_to_s3: bool = False
    training_job_name: str | None = None
    debug_output: OutputPaths = field(default_factory=OutputPaths)
    tensorboard_output: OutputPaths | None = None
    checkpoint: OutputPaths | None = None
    debug_rule_configurations: tuple[dict[str, Any], ...] | None = None
    actions: tuple[dict[str, Any], ...] = ()
    opt_out_of_stop: bool = False


@dataclass(frozen=True)
class CheckpointConfig:
    """Folder of the checkpoints of a run and of the hook's state file.

    Attributes:
        local_path: The folder.
        s3_uri: Where the hook itself copies its state to and from; None where the platform does
            that, or nobody.
    """

    local_path: Path
    s3_uri: str | None = None


@dataclass(frozen=True)
class HookTargets:
    """Where a hook writes.

    Attributes:
        out: The trial's root.
        tensorboard: Root of TensorBoard's files, with one folder a mode; None: there are none.
        checkpoint: Where the state is that a resumed training continues from; None: nowhere.
        given_out: The path or URI of the root as it was given; None: the root has moved.
        given_tensorboard: The same for TensorBoard's files.
    """

    out: Store
    tensorboard: Store | None = None
    checkpoint: CheckpointConfig | None = None
    given_out: str | None = None
    given_tensorboard: str | None = None

    @property
    def out_dir(self) -> str:
        """Path or URI of the trial's root: as it was given, unless the root has moved."""
        return self.given_out or path_or_uri(self.out)

    @property
    def tensorboard_dir(self) -> str | None:
        """Path or URI of TensorBoard's files, likewise; None: there are none."""
        store = self.tensorboard
        return None if store is None else self.given_tensorboard or path_or_uri(store)

    def moved(self, rename: Callable[[str], str]) -> HookTargets:
        """Return the targets with another root; checkpoints stay where they are.

        Args:
            rename: Returns the new URI of the root, and of what has a place of its own.
        """
        root = self.out.uri

        def rename_path(uri: str) -> str:
            return rename(root) + uri[len(root) :] if uri.startswith(root) else rename(uri)

        tensorboard = self.tensorboard
        if tensorboard is not None:
            tensorboard = reopened(tensorboard, rename_path)
        return HookTargets(reopened(self.out, rename), tensorboard, self.checkpoint)


@dataclass(frozen=True)
class JobEnvironment:
    """The job as the platform and the configuration describe it; it becomes `job.json`.

    Attributes:
        training_job_name: Name of the job.
        training_job_arn: ARN of the job on SageMaker, else None.
        debug_rule_configurations: The rules that the job asks for, as in CreateTrainingJob; None
            when the deployed rules apply with their own parameters.
        actions: What must be done on a finding.
        opt_out_of_stop: Whether the job must never be stopped.
    """

    training_job_name: str
    training_job_arn: str | None = None
    debug_rule_configurations: tuple[dict[str, Any], ...] | None = None
    actions: tuple[dict[str, Any], ...] = ()
    opt_out_of_stop: bool = False

    @property
    def platform(self) -> str:
        """`sagemaker` where the platform gave the job an ARN, else `local`."""
        return "sagemaker" if self.training_job_arn else "local"

    @classmethod
    def detect(
        cls,
        root: str,
        environ: Mapping[str, str] = os.environ,
        configuration: JobConfiguration | None = None,
    ) -> JobEnvironment:
        """Read `TRAINING_JOB_NAME` and `TRAINING_JOB_ARN`.

        Args:
            root: URI of the trial's root; names the job where nothing else does.
            environ: The environment.
            configuration: What a configuration file says of the job.
        """
        said = configuration or JobConfiguration()
        name = job_name(environ, said) or job_name_of(root) or "training"
        return cls(
            name,
            environ.get("TRAINING_JOB_ARN", "").strip() or None,
            said.debug_rule_configurations,
            said.actions,
            said.opt_out_of_stop,
        )


def job_name(environ: Mapping[str, str], configuration: JobConfiguration) -> str | None:
    """Return the job's name as the platform, else the configuration says it."""
    return environ.get("TRAINING_JOB_NAME", "").strip() or configuration.training_job_name
