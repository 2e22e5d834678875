"""Builds console URLs of the logs of a job's rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rule_runtime.jobs.console_links import log_events_page
from rule_runtime.jobs.deployment import (
    CUSTOM_RULES_GROUP,
    JOB_RULES_GROUP,
    Deployment,
    DeploymentError,
)
from rule_runtime.jobs.native_job import PROCESSING_LOG_GROUP, processing_log_stream

__all__ = ["native_log_urls", "our_log_urls"]

_SOURCE: Final = "source_s3_uri"


def our_log_urls(
    job_name: str,
    rules: Mapping[str, Mapping[str, Any]],
    deployment: Deployment,
    region: str,
) -> dict[str, str]:
    """Return URLs by rule of the log lines about one job.

    Args:
        job_name: Name of the job.
        rules: Parameters of the job's rules, by configuration name.
        deployment: The deployment that evaluates them.
        region: Its Region.

    Raises:
        DeploymentError: You may not describe it, or it evaluates no such rule.
    """
    pattern = f"{{ $.training_job_name = {json.dumps(job_name)} }}"
    return {
        name: log_events_page(region, _log_group(name, parameters, deployment), pattern)
        for name, parameters in rules.items()
    }


def native_log_urls(
    job_name: str, statuses: Iterable[Mapping[str, Any]], region: str
) -> dict[str, str]:
    """Return URLs by rule of SageMaker Debugger: the streams of its processing jobs."""
    return {
        status["RuleConfigurationName"]: log_events_page(
            region, PROCESSING_LOG_GROUP, stream=processing_log_stream(job_name, status)
        )
        for status in statuses
    }


def _log_group(rule: str, parameters: Mapping[str, Any], deployment: Deployment) -> str:
    groups = deployment.log_groups
    is_custom = _SOURCE in parameters and deployment.custom_rules.runs(parameters[_SOURCE])
    group = groups.get(rule) or groups.get(CUSTOM_RULES_GROUP if is_custom else JOB_RULES_GROUP)
    if group is None:
        raise DeploymentError(
            f"{deployment.stack_name} does not evaluate the rule {rule}: it has no function of its "
            "own, and stepwatch:per_job_rules is off"
        )
    return group
