"""The verdicts on one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rule_runtime.engine.state import EvaluationState

__all__ = ["RunVerdicts"]


@dataclass(frozen=True)
class RunVerdicts:
    """The final states of the rules over one run, by their names.

    The run has no name where it is judged by itself.
    """

    name: str
    path: str
    states: Mapping[str, EvaluationState]
