"""Writes reports about runs as files (extra `report`).

`job_report(trial)` is the report about any job; `xgboost_report.py` has one for XGBoost runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

__all__ = ["HtmlReport", "job_report"]

if TYPE_CHECKING:
    from rule_runtime.reporting.html_report import HtmlReport, job_report
else:
    # Other parts of this package work without jinja2, which pages need.
    __getattr__, __dir__ = lazy_names(
        __name__, dict.fromkeys(__all__, "rule_runtime.reporting.html_report")
    )
