"""The report about a job: what rules found, and how the training went, as one page.

It is made of the statistics in the index files, and of no more of these than a page can show; of
event files only what shows how many elements are zero, where a finding is about that. So it takes
seconds for any length of a run. The page needs no other
file and no script, and reads on light and dark ground and on a phone.
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
from rule_runtime.reporting.job_configuration import JobConfiguration
from rule_runtime.reporting.job_numbers import JobNumbers
from rule_runtime.reporting.job_verdicts import JobVerdict, Verdicts, stored_verdicts, verdicts_of
from rule_runtime.reporting.pages import rendered
from rule_runtime.reporting.run_reader import ReadLimits, current_run_of, read_run

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["HtmlReport", "job_report", "report_of_store"]

_FRAME_HEIGHT = 720


@dataclass(frozen=True, eq=False)
class HtmlReport:
    """A report; a notebook shows it."""

    parts: JobNumbers
    made_at: str = ""

    @cached_property
    def html(self) -> str:
        """The page."""
        return rendered("job_report.html.j2", numbers=self.parts, made_at=self.made_at)

    @property
    def numbers(self) -> dict[str, Any]:
        """What the page says, as JSON without NaN."""
        return self.parts.to_json()

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the report; return where it is.

        Args:
            path: File, or `s3://` URI of one; its numbers as JSON if its name ends in `.json`, else
                the page.

        Raises:
            ValueError: The path names no file.
            StorageError: The storage cannot be written.
        """
        text = os.fspath(path)
        folder, slash, name = text.rpartition("/")
        if not name:
            raise ValueError(f"{text!r} names no file: give one such as report.html")
        is_json = name.endswith(".json")
        content = json.dumps(self.numbers, indent=1, allow_nan=False) if is_json else self.html
        open_store(folder or (slash or ".")).put(name, content.encode())
        return text

    def _repr_html_(self) -> str:
        # A frame keeps the style of the page and of the notebook apart, and runs no script.
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
    """Return the report about a job, or a trial of any kind.

    Args:
        trial: The trial, or folder or `s3://` URI of its root.
        verdicts: What rules found: states by name, or entries as `stepwatch evaluate --output json`
            prints them. Not given: what was written to `rule-output/` beside the tensors.
        limits: How much of the run is read.

    Raises:
        ImportError: If jinja2 is not installed.
        ValueError: If the path cannot be opened, or a verdict is none.
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
    made_at = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    history = reading.history
    configuration = JobConfiguration.read(store, history.kinds, history.extremes.names)
    numbers = JobNumbers.of(store.uri, reading, verdicts, configuration)
    return HtmlReport(numbers.with_worst(), made_at)
