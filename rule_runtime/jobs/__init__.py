"""A training job as its owner sees it: `prepare` before it starts, `DebugJob` from then on.

    from rule_runtime.jobs import DebugJob, prepare

    prepared = prepare(job_name="mnist-7", output_path="s3://my-bucket/output", rules=[...])
    ...  # start the job on any platform, with `prepared.environment`
    prepared.job().wait_for_rules()

What a name needs is imported when it is first asked for, and boto3 when the first request to AWS is
made: jobs in folders need neither an account nor boto3.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rule_runtime.jobs.aws import AwsRequestError
    from rule_runtime.jobs.debug_job import DebugJob
    from rule_runtime.jobs.deployment import DeploymentError
    from rule_runtime.jobs.prepared_job import PreparedJob
    from rule_runtime.jobs.preparing import prepare

__all__ = ["AwsRequestError", "DebugJob", "DeploymentError", "PreparedJob", "prepare"]

_HOMES: Final = {
    "AwsRequestError": "aws",
    "DebugJob": "debug_job",
    "DeploymentError": "deployment",
    "PreparedJob": "prepared_job",
    "prepare": "preparing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
