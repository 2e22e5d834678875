"""Builds URLs of pages in the AWS console."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

__all__ = [
    "PARTITION_DOMAINS",
    "log_events_page",
    "log_group_page",
    "partition_of",
    "training_job_page",
]

PARTITION_DOMAINS: Final = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""Domain of the console by partition; `lambdas.contracts.console` has the same names."""

_PARTITIONS: Final = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}


def partition_of(region: str) -> str:
    """Return the partition of a Region, as in ARNs."""
    found = (partition for prefix, partition in _PARTITIONS.items() if region.startswith(prefix))
    return next(found, "aws")


def training_job_page(region: str, name: str) -> str:
    """Return the URL of a training job's page."""
    job = quote(name, safe="")
    return f"https://{_host(region)}/sagemaker/home?region={region}#/jobs/{job}"


def log_group_page(region: str, log_group: str) -> str:
    """Return the URL of a log group's page."""
    page = f"https://{_host(region)}/cloudwatch/home?region={region}"
    return f"{page}#logsV2:log-groups/log-group/{_in_fragment(log_group)}"


def log_events_page(region: str, log_group: str, pattern: str = "", *, stream: str = "") -> str:
    """Return the URL of the events of a log group that match a filter.

    Args:
        region: Region of the log group.
        log_group: Its name.
        pattern: A filter pattern of CloudWatch Logs; empty for all events.
        stream: Name of the log stream; empty for all.
    """
    page = f"{log_group_page(region, log_group)}/log-events"
    if stream:
        page += f"/{_in_fragment(stream)}"
    return f"{page}$3FfilterPattern$3D{_in_fragment(pattern)}" if pattern else page


def _in_fragment(text: str) -> str:
    # The console quotes text twice, and replaces "%" by "$".
    return quote(quote(text, safe=""), safe="").replace("%", "$")


def _host(region: str) -> str:
    return f"{region}.{PARTITION_DOMAINS[partition_of(region)]}"
