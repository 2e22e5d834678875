"""Resolves lists of names by rule in a function's environment, where only the first is written."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin

__all__ = ["resolve_names"]


def resolve_names(listed: Mapping[str, str]) -> dict[str, str]:
    """Return whole names by rule; `rule_runtime.jobs.deployment` does the same.

    Args:
        listed: Names or URLs by rule. The first one is complete, and ends with its rule. The others
            are relative to it; empty if they differ only in the rule.
    """
    rule, first = next(iter(listed.items()), ("", ""))
    beginning = first.removesuffix(rule)
    return {name: urljoin(first, end) if end else beginning + name for name, end in listed.items()}
