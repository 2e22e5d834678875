"""Switches SageMaker Debugger off in an estimator of the SageMaker SDK."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DebuggerOff"]


@dataclass(frozen=True)
class DebuggerOff:
    """Means the same as `debugger_hook_config=False`, and names the job's output.

    With None, the SDK would switch Debugger on. With False,
    `estimator.latest_job_debugger_artifacts_path()` raises an AttributeError.

    Attributes:
        s3_output_path: Prefix of the job's output.
    """

    s3_output_path: str

    def __bool__(self) -> bool:
        return False
