"""Prepares a training job with `prepare`, and follows it with `DebugJob`.

    from rule_runtime.jobs import DebugJob, prepare

    prepared = prepare(job_name="mnist-7", output_path="s3://my-bucket/output", rules=[...])
    ...  # start the job on any platform, with `prepared.environment`
    prepared.job().wait_for_rules()

Names are imported lazily, and boto3 at the first request to AWS. Jobs in local folders need neither
an AWS account nor boto3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

if TYPE_CHECKING:
    from rule_runtime.jobs.aws import AwsRequestError
    from rule_runtime.jobs.debug_job import DebugJob
    from rule_runtime.jobs.deployment import DeploymentError
    from rule_runtime.jobs.job_preparation import prepare
    from rule_runtime.jobs.prepared_job import PreparedJob
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AwsRequestError": "rule_runtime.jobs.aws",
            "DebugJob": "rule_runtime.jobs.debug_job",
            "DeploymentError": "rule_runtime.jobs.deployment",
            "PreparedJob": "rule_runtime.jobs.prepared_job",
            "prepare": "rule_runtime.jobs.job_preparation",
        },
    )

__all__ = ["AwsRequestError", "DebugJob", "DeploymentError", "PreparedJob", "prepare"]
