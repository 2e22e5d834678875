"""Exports findings to GitHub Actions: an annotation at the line to change, and the summary."""

from __future__ import annotations

import os
from pathlib import Path

from rule_runtime.exporting.run_findings import RunFindings

__all__ = ["export_run"]


def export_run(run: RunFindings) -> None:
    """Print an error for the runner, and append the findings to the summary of the job's step."""
    if run.findings:
        text = _escaped(f"{run.headline}. Change: {run.change}")
        print(f"::error {_location(run)}title={_property(f'Stepwatch: {run.name}')}::{text}")  # noqa: T201
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"{run.markdown}\n\n")


def _location(run: RunFindings) -> str:
    """Return the line to change, with its file relative to the checkout; "" if it is unknown."""
    file, _, line = run.line.rpartition(":")
    if not file or not line.isdecimal():
        return ""
    root = os.environ.get("GITHUB_WORKSPACE") or "."
    path = os.path.relpath(file, root)
    shown = file if path.startswith(os.pardir) else Path(path).as_posix()
    return f"file={_property(shown)},line={line},"


def _escaped(text: str) -> str:
    """Return text on one line, because the runner reads each line for itself."""
    return " ".join(text.split()).replace("%", "%25")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
