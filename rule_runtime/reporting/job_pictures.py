"""The pictures of a report, drawn from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from rule_runtime.reporting.heat_map import heat_map
from rule_runtime.reporting.job_numbers import JobNumbers
from rule_runtime.reporting.layer_maps import LayerMap
from rule_runtime.reporting.line_chart import line_chart

__all__ = ["JobPictures"]


@dataclass(frozen=True)
class JobPictures:
    """Pictures as HTML.

    Attributes:
        plots: Of findings, by the name of the rule.
        curves: Of losses and others, by heading.
        gradients: The heat map of gradients.
        updates: The heat map of updates.
    """

    plots: Mapping[str, Markup]
    curves: Mapping[str, Markup]
    gradients: Markup | None
    updates: Markup | None

    @classmethod
    def of(cls, numbers: JobNumbers) -> JobPictures:
        """Return the pictures of a report."""
        plots = {
            name: line_chart(
                plot.lines,
                label=f"{plot.what} of {plot.lines[0].name} around step {plot.at}",
                threshold=plot.threshold,
                at=plot.at,
            )
            for name, plot in numbers.plots.items()
        }
        curves = {
            heading: line_chart(lines, label=f"{heading} over the steps")
            for heading, lines in numbers.curves.items()
        }
        return cls(
            {name: Markup(text) for name, text in plots.items()},  # noqa: S704 - it escapes texts
            {name: Markup(text) for name, text in curves.items()},  # noqa: S704
            _map(numbers.gradients, "Norms of gradients over the steps"),
            _map(numbers.updates, "Sizes of updates over the steps"),
        )


def _map(data: LayerMap | None, label: str) -> Markup | None:
    return None if data is None else Markup(heat_map(data.data, label=label))  # noqa: S704
