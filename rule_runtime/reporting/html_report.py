"""Builds the report about a job as one page: findings and the course of training.

The report uses statistics in index files, and only as many as a page can show. It reads event files
only to count zero elements, for findings about them. So it takes seconds for a run of any length.
The page has no script and needs no other file. It supports light and dark themes and phones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from hook_layer.storage.base import Store, open_store
from rule_runtime.reporting.coverage import coverage_of
from rule_runtime.reporting.job_configuration import JobConfiguration
from rule_runtime.reporting.job_numbers import JobNumbers
from rule_runtime.reporting.job_verdicts import JobVerdict, Verdicts, stored_verdicts, verdicts_of
from rule_runtime.reporting.output_file import check_replaceable, folder_and_name
from rule_runtime.reporting.pages import rendered
from rule_runtime.reporting.run_reader import ReadLimits, current_run_of, read_run

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["HtmlReport", "job_report", "report_of_store"]

_FRAME_HEIGHT = 720


@dataclass(frozen=True, eq=False)
class HtmlReport:
    """A report; notebooks display it."""

    parts: JobNumbers
    made_at: str = ""

    @cached_property
    def html(self) -> str:
        """The page."""
        return rendered("job_report.html.j2", numbers=self.parts, made_at=self.made_at)

    @property
    def numbers(self) -> dict[str, Any]:
        """The content of the page as JSON without NaN."""
        return self.parts.to_json()

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> str:
        """Write the report; return its path.

        An earlier report at the path is replaced.

        Args:
            path: File or its `s3://` URI. A name that ends in `.json` gets the numbers as JSON, any
                other name the page.
            overwrite: True to replace a file that is no report, too.

        Raises:
            ValueError: The path is not that of a file, or of a file that is no report.
            StorageError: The storage cannot be read or written.
        """
        folder, name = folder_and_name(path)
        if not overwrite:
            check_replaceable(path)
        is_json = name.endswith(".json")
        content = json.dumps(self.numbers, indent=1, allow_nan=False) if is_json else self.html
        open_store(folder).put(name, content.encode())
        return os.fspath(path)

    def _repr_html_(self) -> str:
        # A frame separates the styles of page and notebook, and runs no script.
        return (
            f'<iframe sandbox srcdoc="{escape(self.html)}" title="Report" width="100%" '
            f'height="{_FRAME_HEIGHT}" style="border:0"></iframe>'
        )


def job_report(
    trial: Trial | str | os.PathLike[str],
    verdicts: Verdicts | None = None,
    *,
    limits: ReadLimits | None = None,
) -> HtmlReport:
    """Return the report about a job or any trial.

    Args:
        trial: The trial, or folder or `s3://` URI of its root.
        verdicts: States by rule name, or entries as printed by `stepwatch evaluate --output json`.
            By default, the verdicts stored in `rule-output/` beside the tensors.
        limits: How much of the run to read.

    Raises:
        ImportError: If jinja2 is not installed.
        ValueError: If the path cannot be opened, or a verdict is invalid.
        StorageError: If the storage cannot be read.
    """
    if isinstance(trial, (str, os.PathLike)):
        store = open_store(os.path.expanduser(trial))  # noqa: PTH111 - may be a URI
    else:
        store = trial.store
    found = None if verdicts is None else verdicts_of(verdicts)
    return report_of_store(store, found, limits=limits)


def report_of_store(
    store: Store,
    verdicts: Sequence[JobVerdict] | None,
    *,
    limits: ReadLimits | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_read: Callable[[str], None] = lambda _: None,
) -> HtmlReport:
    """Return the report about the run in a store; by default, its verdicts are in `rule-output/`.

    `on_start` is called with the number of index files to read, `on_read` with the key of each.

    Raises:
        StorageError: If the storage cannot be read.
    """
    if verdicts is None:
        verdicts = stored_verdicts(store.uri, current_run_of(store))
    evidence = [verdict.evidence for verdict in verdicts if verdict.evidence is not None]
    reading = read_run(store, evidence, limits, on_start=on_start, on_read=on_read)
    judged = {each.name: each.needs_more or not each.is_not_judged for each in verdicts}
    coverage = coverage_of(store, judged, reader=reading.history.kinds.reader)
    if coverage is not None:
        reading.notes.insert(0, str(coverage))
    made_at = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    history = reading.history
    configuration = JobConfiguration.read(store, history.kinds, history.extremes.names)
    numbers = JobNumbers.of(store.uri, reading, verdicts, configuration)
    return HtmlReport(numbers.with_worst(), made_at)
