"""What a finding is about, over the steps around it: its tensor, and where it was found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.reporting.line_chart import Line
from rule_runtime.reporting.run_history import number_of

if TYPE_CHECKING:
    from rule_runtime.evaluation.outcome import Evidence
    from rule_runtime.reporting.run_history import RunHistory

__all__ = ["WINDOW", "FindingPlot", "finding_plot"]

WINDOW: Final = 40
"""Saved steps before, and behind, the finding."""
_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}

_Row = npt.NDArray[np.float64]

_MEASURES: Final[dict[str, Callable[[_Row], float]]] = {
    "variance": lambda row: float(row[_AT["std"]]) ** 2,
    "rms": lambda row: float(row[_AT["l2"]]) / math.sqrt(max(float(row[_AT["size"]]), 1.0)),
    "minimum": lambda row: float(row[_AT["min"]]),
}
"""What rules measure, under another name than that of a statistic."""


@dataclass(frozen=True)
class FindingPlot:
    """The numbers of a finding's tensor around it.

    Attributes:
        line: The curve.
        what: What is drawn of the tensor.
        threshold: What the rule compared it with; None where that is another number than is drawn.
        at: The step of the finding.
    """

    line: Line
    what: str
    threshold: float | None
    at: int

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON."""
        return {
            "what": self.what,
            "steps": list(self.line.steps),
            "values": list(self.line.numbers),
            "threshold": self.threshold,
        }


def finding_plot(history: RunHistory, evidence: Evidence) -> FindingPlot | None:
    """Return what to draw of a finding; None if no statistics of its tensor are there.

    Where the rule's own measure cannot be had from the statistics of its tensor alone, the tensor's
    value (of one element) or its L2 norm is drawn.

    Args:
        history: The run; it watched the tensor.
        evidence: The finding.
    """
    known = history.rows.get((evidence.worker, evidence.tensor), {})
    of_mode = {step: row for step, (mode, row) in known.items() if mode == evidence.mode}
    steps = sorted(of_mode or {})
    if not steps:
        return None
    before = [step for step in steps if step <= evidence.step][-WINDOW - 1 :]
    behind = [step for step in steps if step > evidence.step][:WINDOW]
    near = [*before, *behind]
    what, measure, is_measure = _measure(evidence.measure, of_mode[near[0]])
    numbers = [_finite(measure(of_mode[step])) for step in near]
    threshold = evidence.threshold if is_measure and math.isfinite(evidence.threshold) else None
    line = Line(f"{what} of {evidence.tensor}", near, numbers)
    return FindingPlot(line, what, threshold, evidence.step)


def _measure(name: str, row: _Row) -> tuple[str, Callable[[_Row], float], bool]:
    if name in _AT:
        return name, lambda row: float(row[_AT[name]]), True
    if name in _MEASURES:
        return name, _MEASURES[name], True
    if row[_AT["size"]] == 1:
        return "value", lambda row: _or_nan(number_of(row)), False
    return "L2 norm", _norm, False


def _norm(row: _Row) -> float:
    is_bad = row[_AT["nan"]] > 0 or row[_AT["inf"]] > 0
    return math.nan if is_bad else float(row[_AT["l2"]])


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
