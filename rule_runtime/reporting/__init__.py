"""Reports of a training as files for people (extra `report`).

`job_report(trial)` is the report about a job of any kind; `xgboost_report.py` has one more, about
trainings with XGBoost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rule_runtime.reporting.html_report import HtmlReport as HtmlReport
    from rule_runtime.reporting.html_report import job_report as job_report

__all__ = ["HtmlReport", "job_report"]


def __getattr__(name: str) -> Any:
    # Other parts of this package do without what pages need.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rule_runtime.reporting import html_report  # noqa: PLC0415 - needs jinja2

    return getattr(html_report, name)
