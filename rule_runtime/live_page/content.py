"""Renders the live page, as a whole or in parts that changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rule_runtime.reporting.job_numbers import JobNumbers
from rule_runtime.reporting.pages import rendered

__all__ = ["page", "parts"]

_PARTS: Final = ("heading", "findings", "curves", "maps", "rules")


def parts(numbers: JobNumbers) -> dict[str, str]:
    """Return the parts of the page as HTML, by element id."""
    return {
        name: rendered("live_part.html.j2", part=name, numbers=numbers).strip() for name in _PARTS
    }


def page(name: str, shown: Mapping[str, str], nonce: str) -> str:
    """Return the initial page.

    Args:
        name: Name of the job.
        shown: Its parts.
        nonce: Nonce of its script and style in the content security policy.
    """
    return rendered("live_page.html.j2", name=name, parts=shown, nonce=nonce)
