"""What the environment says about the job that the hook runs in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hook_layer.errors import HookConfigurationError
from hook_layer.format.paths import job_name_of

__all__ = ["DEFAULT_SAGEMAKER_OUT_DIR", "JobEnvironment", "hook_enabled", "resolve_out_dir"]

DEFAULT_SAGEMAKER_OUT_DIR: Final = "/opt/ml/output/tensors"
_OFF: Final = frozenset(("0", "false", "no", "off"))


def hook_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether hooks do anything: `USE_SMDEBUG=0` (or `false`) switches all of them off."""
    return environ.get("USE_SMDEBUG", "").strip().lower() not in _OFF


@dataclass(frozen=True)
class JobEnvironment:
    """The job as the platform names it.

    Attributes:
        training_job_name: Name of the job.
        training_job_arn: ARN of the job on SageMaker, else None.
    """

    training_job_name: str
    training_job_arn: str | None = None

    @property
    def platform(self) -> str:
        """`sagemaker` where the platform gave the job an ARN, else `local`."""
        return "sagemaker" if self.training_job_arn else "local"

    @classmethod
    def detect(cls, root: str, environ: Mapping[str, str] = os.environ) -> JobEnvironment:
        """Read `TRAINING_JOB_NAME` and `TRAINING_JOB_ARN`.

        Args:
            root: URI of the trial's root; names the job where the environment does not.
            environ: The environment.
        """
        name = environ.get("TRAINING_JOB_NAME", "").strip() or job_name_of(root) or "training"
        return cls(name, environ.get("TRAINING_JOB_ARN", "").strip() or None)


def resolve_out_dir(
    out_dir: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the folder or URI to write to.

    Raises:
        HookConfigurationError: None was given outside of a SageMaker job.
    """
    if out_dir is not None and os.fspath(out_dir).strip():
        return os.fspath(out_dir).strip()
    if environ.get("TRAINING_JOB_NAME"):
        return DEFAULT_SAGEMAKER_OUT_DIR
    raise HookConfigurationError(
        "out_dir is missing: give a folder or an s3://bucket/prefix, e.g. Hook('runs/mnist-1')"
    )
