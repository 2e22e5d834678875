"""The job of a hook, and where the hook writes.

`hook_layer.configuration.places` determines the latter.
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
    """Return whether hooks are enabled; `USE_SMDEBUG=0` (or `false`) disables them."""
    return environ.get("USE_SMDEBUG", "").strip().lower() not in _OFF


def is_training_job(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a platform names the job in `TRAINING_JOB_NAME`, as SageMaker always does."""
    return bool(environ.get("TRAINING_JOB_NAME", "").strip())


@dataclass(frozen=True)
class OutputPaths:
    """`S3OutputPath` (for checkpoints: `S3Uri`) and `LocalPath`, as in CreateTrainingJob."""

    s3: str | None = None
    local: str | None = None


@dataclass(frozen=True)
class JobConfiguration:
    """The job's part of a configuration file, for any framework.

    Attributes:
        source: Name of the file, for messages; empty without one.
        writes_to_s3: Whether the hook itself writes to `S3OutputPath`, instead of an agent.
        training_job_name: The job's name.
        debug_output: Where tensors go.
        tensorboard_output: Where TensorBoard files go.
        checkpoint: Where checkpoints are.
        debug_rule_configurations: The job's rules; None: the deployed ones.
        actions: Actions on a finding.
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
    """Folder of a run's checkpoints and the hook's state file.

    Attributes:
        local_path: The folder.
        s3_uri: Location of the copy that the hook itself makes of its state; None if the platform
            makes it, or nobody does.
    """

    local_path: Path
    s3_uri: str | None = None


@dataclass(frozen=True)
class HookTargets:
    """Where a hook writes.

    Attributes:
        out: The trial's root.
        tensorboard: Root of the TensorBoard files, with one folder per mode; None: not written.
        checkpoint: Location of the state that a resumed training continues from; None: nowhere.
        given_out: The path or URI of the root as given; None: the root has moved.
        given_tensorboard: The same for TensorBoard files.
    """

    out: Store
    tensorboard: Store | None = None
    checkpoint: CheckpointConfig | None = None
    given_out: str | None = None
    given_tensorboard: str | None = None

    @property
    def out_dir(self) -> str:
        """Path or URI of the trial's root: as given, unless the root has moved."""
        return self.given_out or path_or_uri(self.out)

    @property
    def tensorboard_dir(self) -> str | None:
        """Path or URI of the TensorBoard files, likewise; None: not written."""
        store = self.tensorboard
        return None if store is None else self.given_tensorboard or path_or_uri(store)

    def moved(self, rename: Callable[[str], str]) -> HookTargets:
        """Return the targets with another root; checkpoints stay where they are.

        Args:
            rename: Maps the URI of the root, and of a separate TensorBoard folder, to the new one.
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
    """The job as described by the platform and the configuration; written to `job.json`.

    Attributes:
        training_job_name: Name of the job.
        training_job_arn: ARN of the job on SageMaker, else None.
        debug_rule_configurations: The job's rules, as in CreateTrainingJob; None to use the
            deployed rules with their own parameters.
        actions: Actions on a finding.
        opt_out_of_stop: Whether the job must never be stopped.
    """

    training_job_name: str
    training_job_arn: str | None = None
    debug_rule_configurations: tuple[dict[str, Any], ...] | None = None
    actions: tuple[dict[str, Any], ...] = ()
    opt_out_of_stop: bool = False

    @property
    def platform(self) -> str:
        """`sagemaker` if the platform gave the job an ARN, else `local`."""
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
            root: URI of the trial's root; the fallback for the job's name.
            environ: The environment.
            configuration: The job's part of a configuration file.
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
    """Return the job's name from the platform, or else from the configuration."""
    return environ.get("TRAINING_JOB_NAME", "").strip() or configuration.training_job_name
