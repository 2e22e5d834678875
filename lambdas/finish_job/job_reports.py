"""Writes the report of a job beside its rules' results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from hook_layer.storage.base import StorageError
from rule_runtime.engine.result_file import RESULTS_PREFIX, result_place

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration
    from rule_runtime.engine.state import EvaluationState

__all__ = ["REPORT_KEY", "JobReports"]

REPORT_KEY: Final = f"{RESULTS_PREFIX}report.html"
_MAX_STEPS: Final = 400
_MAX_BYTES: Final = 256 << 20
_MAX_SECONDS: Final = 25.0


class JobReports:
    """Writes `rule-output/report.html` of jobs.

    A report that fails has no effect on the verdicts.

    Args:
        open_store: Returns the store at a folder.
        telemetry: Logs and metrics.
    """

    def __init__(self, open_store: Callable[[str], Store], telemetry: Telemetry) -> None:
        self._open_store = open_store
        self._telemetry = telemetry

    def write(self, job: Registration, states: Mapping[str, EvaluationState]) -> bool:
        """Write the report of a job with the states of its rules; return whether it did."""
        # Slow imports; most events require no report.
        from rule_runtime.reporting.html_report import report_of_store  # noqa: PLC0415
        from rule_runtime.reporting.job_verdicts import verdicts_of  # noqa: PLC0415
        from rule_runtime.reporting.run_reader import ReadLimits  # noqa: PLC0415

        limits = ReadLimits(steps=_MAX_STEPS, bytes=_MAX_BYTES, seconds=_MAX_SECONDS)
        folder, _ = result_place(job.root_uri, "")
        try:
            report = report_of_store(
                self._open_store(job.root_uri), verdicts_of(states), limits=limits
            )
            self._open_store(folder).put(REPORT_KEY, report.html.encode())
        except (StorageError, ValueError) as error:
            self._telemetry.count("ReportsNotWritten")
            self._telemetry.warning("the report is not written", problem=str(error))
            return False
        self._telemetry.count("ReportsWritten")
        return True
