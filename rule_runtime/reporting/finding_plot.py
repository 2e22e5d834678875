"""Plots what the rule of a finding measured, over the steps around the finding.

The plot shows the rule's own measure, or a similar number whose caption says how it differs. If
neither is known, there is no plot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.reporting.axes import number_text
from rule_runtime.reporting.finding_measures import LOSS, MEASURES, Agreement, Measure
from rule_runtime.reporting.line_chart import Line

if TYPE_CHECKING:
    from rule_runtime.engine.outcome import Evidence
    from rule_runtime.reporting.run_history import RunHistory, WatchedRow

__all__ = ["WINDOW", "FindingPlot", "finding_plot", "watch_finding"]

WINDOW: Final = 40
"""Number of saved steps before and after the finding."""
_REL_TOLERANCE: Final = 1e-3
"""Norms have single precision."""
_FROM_VALUES: Final = frozenset({"zero_percent", "dead_units_percent"})
_DIFFERS: Final = (
    "The rule evaluates another number, such as a mean; its threshold does not apply to this curve."
)
_OF_ALL_GRADIENTS: Final = "norm_of_all_gradients"
_SIZE: Final = STATISTICS_COLUMNS.index("size")
_EVALUATION: Final = frozenset({"EVAL", "PREDICT"})


@dataclass(frozen=True)
class FindingPlot:
    """The plotted numbers around a finding.

    Attributes:
        lines: The curves; the first has the finding's mode.
        threshold: The rule's threshold; None if another number is plotted.
        caption: Description of the plot, and how it differs from the rule's measure.
    """

    lines: Sequence[Line]
    measure: str
    what: str
    unit: str
    threshold: float | None
    at: int
    caption: str

    def to_json(self) -> dict[str, Any]:
        """Return the curves as JSON."""
        return {
            "measure": self.measure,
            "what": self.what,
            "unit": self.unit,
            "threshold": self.threshold,
            "caption": self.caption,
            "lines": [line.to_json() for line in self.lines],
        }


def watch_finding(history: RunHistory, evidence: Evidence) -> str:
    """Make a run keep the data for a finding's plot; return the tensor to watch."""
    measure = MEASURES.get(evidence.measure, LOSS)
    if evidence.measure in _FROM_VALUES:
        history.zero_shares.want(evidence.worker, evidence.tensor)
    return measure.prefix + evidence.tensor


def finding_plot(history: RunHistory, evidence: Evidence) -> FindingPlot | None:
    """Return the plot of a finding that a run watched; None if the data is missing."""
    measure = MEASURES.get(evidence.measure)
    found = None if measure is None else _plot(history, evidence, measure)
    if found is not None:
        return found
    rows = history.rows.get((evidence.worker, evidence.tensor), {})
    is_number = bool(rows) and all(each.row[_SIZE] == 1 for each in rows.values())
    if not is_number or not (measure is None or measure.numbers is LOSS.numbers):
        return None
    if measure is not None:
        return _plot(history, evidence, replace(LOSS, note=_DIFFERS))
    # Custom rules have unknown measures; the value of a one-element tensor still helps.
    same = _plot(history, evidence, replace(LOSS, agreement=Agreement.SAME))
    note = f"The rule evaluates {evidence.measure.replace('_', ' ')}, which is not plotted."
    return same or _plot(history, evidence, replace(LOSS, note=note))


def _plot(history: RunHistory, evidence: Evidence, measure: Measure) -> FindingPlot | None:
    tensor = measure.prefix + evidence.tensor
    rows = history.rows.get((evidence.worker, tensor), {})
    numbers = _numbers(history, evidence, measure, rows)
    if evidence.mode not in numbers or not _agrees(numbers[evidence.mode], evidence, measure):
        return None
    has_threshold = measure.agreement in {Agreement.SAME, Agreement.SIDE}
    threshold = evidence.threshold if has_threshold and math.isfinite(evidence.threshold) else None
    name = "all gradients" if evidence.measure == _OF_ALL_GRADIENTS else tensor
    modes = [evidence.mode, *sorted(set(numbers) - {evidence.mode})]
    shown = modes if measure.is_beside else modes[:1]
    near = _near(sorted(set().union(*(numbers[mode] for mode in shown))), evidence.step)
    lines = [
        _line(name if len(shown) == 1 else f"{name} ({mode})", numbers[mode], near, at, mode)
        for at, mode in enumerate(shown)
    ]
    unit = f", {measure.unit}" if measure.unit else ""
    caption = f"{measure.what[0].upper()}{measure.what[1:]}{unit}: {name}."
    if threshold is not None:
        caption += f" The level line is the threshold of step {evidence.step}, "
        caption += f"{number_text(threshold)}."
    return FindingPlot(
        lines=lines,
        measure=evidence.measure,
        what=measure.what,
        unit=measure.unit,
        threshold=threshold,
        at=evidence.step,
        caption=f"{caption} {measure.note}".strip(),
    )


def _numbers(
    history: RunHistory, evidence: Evidence, measure: Measure, rows: Mapping[int, WatchedRow]
) -> dict[str, dict[int, float]]:
    """Return the numbers to plot by mode and step."""
    if evidence.measure == _OF_ALL_GRADIENTS:
        return {evidence.mode: _norms(history)} if evidence.worker == history.worker else {}
    found: dict[str, dict[int, float]] = {}
    if measure.numbers is None:
        known = history.zero_shares.of(evidence.worker, evidence.tensor)
        for step, share in sorted(known.items()):
            if step in rows:
                found.setdefault(rows[step].mode, {})[step] = share
        return found
    for mode in {each.mode for each in rows.values()}:
        of_mode = {step: each for step, each in sorted(rows.items()) if each.mode == mode}
        numbers = measure.numbers(list(of_mode.values()))
        pairs = zip(of_mode, numbers, strict=True)
        found[mode] = {step: number for step, number in pairs if number is not None}
    return found


def _norms(history: RunHistory) -> dict[int, float]:
    """Return the total norm of all gradients by step."""
    entries = sorted(history.norms.entries.items())
    return {
        step: float(np.linalg.norm(each.gradients.astype(np.float64)))
        for step, each in entries
        if len(each.gradients)
    }


def _agrees(numbers: Mapping[int, float], evidence: Evidence, measure: Measure) -> bool:
    """Return whether the curve agrees with the finding's sentence."""
    if measure.agreement is Agreement.NONE:
        return bool(numbers)
    number = numbers.get(evidence.step, math.nan)
    value, threshold = evidence.value, evidence.threshold
    if measure.agreement is Agreement.ZERO:
        return number == 0
    if measure.agreement is Agreement.SIDE:
        return (number - threshold) * (value - threshold) > 0
    are_strange = not (math.isfinite(number) or math.isfinite(value))
    return are_strange or math.isclose(number, value, rel_tol=_REL_TOLERANCE, abs_tol=1e-12)


def _near(steps: Sequence[int], at: int) -> tuple[int, int]:
    """Return the first and last plotted step."""
    before = [step for step in steps if step <= at][-WINDOW - 1 :]
    behind = [step for step in steps if step > at][:WINDOW]
    near = [*before, *behind]
    return near[0], near[-1]


def _line(
    name: str, numbers: Mapping[int, float], near: tuple[int, int], at: int, mode: str
) -> Line:
    shown = {step: number for step, number in numbers.items() if near[0] <= step <= near[1]}
    finite = [number if math.isfinite(number) else None for number in shown.values()]
    return Line(name, list(shown), finite, at, is_dashed=mode in _EVALUATION)
