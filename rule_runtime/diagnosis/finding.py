"""What one look at an installation or a deployment found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Verdict"]


class Verdict(str, Enum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """What one look found.

    Attributes:
        subject: What was looked at.
        verdict: How serious it is.
        told: What was found.
        remedy: What to do about it; empty where nothing need be done.
    """

    subject: str
    verdict: Verdict
    told: str
    remedy: str = ""
