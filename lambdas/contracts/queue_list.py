"""Resolves the list of the rules' queues in a function's environment."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin

__all__ = ["resolve_queue_urls"]


def resolve_queue_urls(listed: Mapping[str, str]) -> dict[str, str]:
    """Return the queues' URLs by rule.

    Args:
        listed: Queues by rule: the URL of the first one, and names of other queues of the same
            account and Region. Full URLs, as in older stacks, stay unchanged.
    """
    first = next(iter(listed.values()), "")
    return {rule: urljoin(first, queue) for rule, queue in listed.items()}
