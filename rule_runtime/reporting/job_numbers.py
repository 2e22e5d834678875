"""The content of a job's report, as parts for the page and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from hook_layer.format.paths import job_name_of
from rule_runtime.diagnosis.diagnosis import Diagnosis
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.reporting.finding_plot import FindingPlot, finding_plot
from rule_runtime.reporting.heat_map import HeatMap
from rule_runtime.reporting.job_configuration import JobConfiguration
from rule_runtime.reporting.job_verdicts import JobVerdict, diagnosis_of_verdicts
from rule_runtime.reporting.layer_maps import gradient_norms, update_ratios
from rule_runtime.reporting.line_chart import NUM_COLORS, Line
from rule_runtime.reporting.pixel_columns import extreme_places
from rule_runtime.reporting.run_history import RunHistory
from rule_runtime.reporting.run_reader import RunReading

__all__ = ["MAX_PLOTS", "JobNumbers"]

_SCHEMA_VERSION: Final = 1
MAX_PLOTS: Final = 24
"""Maximum number of plotted findings."""
_MAX_CURVES: Final = 8
_MAX_POINTS: Final = 1000
_MAX_WORST: Final = 12
_KINDS: Final = {"losses": "Losses", "metrics": "Metrics", "scalars": "Single numbers"}


@dataclass(frozen=True, eq=False)
class JobNumbers:
    """The parts of a report.

    Attributes:
        verdicts: Verdicts of rules, findings first.
        plots: Plots of findings, by rule name.
        curves: Curves by heading: losses, metrics, other scalars.
        updates: Sizes of updates.
        worst: The most conspicuous tensors.
        num_more_worst: Number of further conspicuous tensors.
    """

    name: str
    path: str
    reading: RunReading
    verdicts: Sequence[JobVerdict]
    configuration: JobConfiguration
    plots: Mapping[str, FindingPlot] = field(default_factory=dict)
    curves: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    gradients: HeatMap | None = None
    updates: HeatMap | None = None
    worst: Sequence[Mapping[str, Any]] = ()
    num_more_worst: int = 0

    @classmethod
    def of(
        cls,
        path: str,
        reading: RunReading,
        verdicts: Sequence[JobVerdict],
        configuration: JobConfiguration,
    ) -> JobNumbers:
        """Return the parts of a report, except for the most conspicuous tensors."""
        history = reading.history
        norms = [each for _, each in sorted(history.norms.entries.items())]
        named = None if configuration.job is None else configuration.job.training_job_name
        found = {
            verdict.name: finding_plot(history, verdict.evidence)
            for verdict in verdicts[:MAX_PLOTS]
            if verdict.evidence is not None
        }
        return cls(
            name=named or job_name_of(path) or path,
            path=path,
            reading=reading,
            verdicts=verdicts,
            configuration=configuration,
            plots={name: plot for name, plot in found.items() if plot is not None},
            curves=_curves(history),
            gradients=gradient_norms(norms, history.extremes.names),
            updates=update_ratios(norms),
        )

    def with_worst(self) -> JobNumbers:
        """Return the parts with the most conspicuous tensors."""
        worst, num_more = self.reading.history.extremes.worst(_MAX_WORST)
        return replace(self, worst=worst, num_more_worst=num_more)

    @property
    def findings(self) -> list[JobVerdict]:
        """The verdicts of rules that found issues."""
        return [each for each in self.verdicts if each.status is RuleStatus.ISSUES_FOUND]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The cause of the findings; None if it is unknown."""
        return diagnosis_of_verdicts(self.verdicts)

    @property
    def not_evaluated(self) -> list[JobVerdict]:
        """The verdicts of rules that were not evaluated or failed."""
        return [each for each in self.verdicts if each.status is RuleStatus.ERROR]

    @property
    def others(self) -> list[JobVerdict]:
        """The verdicts of the other rules."""
        reported = (RuleStatus.ISSUES_FOUND, RuleStatus.ERROR)
        return [each for each in self.verdicts if each.status not in reported]

    def to_json(self) -> dict[str, Any]:
        """Return all numbers of the report as JSON without NaN."""
        reading = self.reading
        return {
            "schema_version": _SCHEMA_VERSION,
            "job": self.name,
            "path": self.path,
            "run": reading.run,
            "has_ended": reading.has_ended,
            "stop": reading.stop_to_json(),
            "steps": {
                "saved": reading.num_steps,
                "looked_at": reading.num_steps_read,
                "first": reading.first_step,
                "last": reading.last_step,
            },
            "workers": list(reading.workers),
            "tensors": len(reading.history.extremes.names),
            "notes": reading.notes,
            "diagnosis": None if (of := self.diagnosis) is None else of.to_json(),
            "verdicts": [self._verdict_to_json(verdict) for verdict in self.verdicts],
            "curves": {
                heading: [line.to_json() for line in lines]
                for heading, lines in self.curves.items()
            },
            "gradients": None if self.gradients is None else self.gradients.to_json(),
            "updates": None if self.updates is None else self.updates.to_json(),
            "worst_tensors": [dict(row) for row in self.worst],
            "num_more_worst_tensors": self.num_more_worst,
            "configuration": self.configuration.to_json(),
        }

    def _verdict_to_json(self, verdict: JobVerdict) -> dict[str, Any]:
        plot = self.plots.get(verdict.name)
        return {**verdict.to_json(), "Plot": None if plot is None else plot.to_json()}


def _curves(history: RunHistory) -> dict[str, list[Line]]:
    """Return the curves of a run by heading; evaluation curves are dashed."""
    found: dict[str, list[Line]] = {}
    for kind, heading in _KINDS.items():
        keys = sorted(key for key in history.scalars if key.kind == kind)
        tensors = list(dict.fromkeys(key.tensor for key in keys))
        has_modes = len({key.mode for key in keys}) > 1
        lines = []
        for key in keys:
            color = tensors.index(key.tensor)
            if color >= _MAX_CURVES:
                continue
            points = sorted(history.scalars[key].entries.items())
            steps = np.array([step for step, _ in points], np.int64)
            numbers = np.array([number for _, number in points], np.float64)
            places = extreme_places(steps, numbers, _MAX_POINTS // 2)
            lines.append(
                Line(
                    f"{key.tensor} ({key.mode})" if has_modes else key.tensor,
                    [points[at][0] for at in places],
                    [points[at][1] for at in places],
                    color % NUM_COLORS,
                    is_dashed=has_modes and key.mode in {"EVAL", "PREDICT"},
                )
            )
        if lines:
            found[heading] = lines
    return found
