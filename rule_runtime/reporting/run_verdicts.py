"""The verdicts on one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rule_runtime.engine.state import EvaluationState

__all__ = ["RunVerdicts"]


@dataclass(frozen=True)
class RunVerdicts:
    """The final states of rules over one run.

    Attributes:
        name: Name of the run in its session; empty where it is judged by itself.
        path: Folder or URI of the trial's root.
        states: The states by the names of the rules.
    """

    name: str
    path: str
    states: Mapping[str, EvaluationState]
