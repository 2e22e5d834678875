"""The result of one check of an installation or deployment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Verdict"]


class Verdict(str, Enum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        subject: What was checked.
        verdict: Its severity.
        told: The result.
        remedy: What to do; empty if nothing is required.
    """

    subject: str
    verdict: Verdict
    told: str
    remedy: str = ""
