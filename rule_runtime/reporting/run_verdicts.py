"""The verdicts of all rules on one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rule_runtime.diagnosis.diagnosis import Diagnosis, diagnosis_of_states
from rule_runtime.engine.state import EvaluationState

if TYPE_CHECKING:  # commands start without numpy
    from rule_runtime.reporting.coverage import Coverage

__all__ = ["RunVerdicts"]


@dataclass(frozen=True)
class RunVerdicts:
    """The final states of the rules on one run, by name.

    The run has no name if it is evaluated alone.

    Attributes:
        coverage: Which rules had data; None if it is unknown.
    """

    name: str
    path: str
    states: Mapping[str, EvaluationState]
    coverage: Coverage | None = None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The cause of the findings; None without findings of rules that it knows."""
        return diagnosis_of_states(self.states)
