"""The verdicts of all rules on one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rule_runtime.engine.state import EvaluationState

__all__ = ["RunVerdicts"]


@dataclass(frozen=True)
class RunVerdicts:
    """The final states of the rules on one run, by name.

    The run has no name if it is evaluated alone.
    """

    name: str
    path: str
    states: Mapping[str, EvaluationState]
