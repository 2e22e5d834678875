"""Domains of the AWS console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CONSOLE_DOMAINS"]

CONSOLE_DOMAINS: Final[Mapping[str, str]] = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""By partition; region and a dot come before the domain."""
