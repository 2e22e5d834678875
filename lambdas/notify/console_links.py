"""Addresses of pages of the AWS console."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from lambdas.contracts.console import CONSOLE_DOMAINS

__all__ = ["log_group_page", "training_job_page"]

_PARTITIONS: Final = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}


def training_job_page(region: str, name: str) -> str:
    """Return the address of the page of a training job.

    Args:
        region: Region of the job.
        name: Name of the job.
    """
    job = quote(name, safe="")
    return f"https://{_host(region)}/sagemaker/home?region={region}#/jobs/{job}"


def log_group_page(region: str, log_group: str) -> str:
    """Return the address of the page of a log group.

    Args:
        region: Region of the log group.
        log_group: Its name.
    """
    # The console quotes the name twice, and writes "$" for "%".
    group = quote(quote(log_group, safe=""), safe="").replace("%", "$")
    page = f"https://{_host(region)}/cloudwatch/home?region={region}"
    return f"{page}#logsV2:log-groups/log-group/{group}"


def _host(region: str) -> str:
    found = (p for prefix, p in _PARTITIONS.items() if region.startswith(prefix))
    return f"{region}.{CONSOLE_DOMAINS[next(found, 'aws')]}"
