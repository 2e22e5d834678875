"""Where the AWS console is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CONSOLE_DOMAINS"]

CONSOLE_DOMAINS: Final[Mapping[str, str]] = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""By partition; a region's name and a dot stand before it."""
