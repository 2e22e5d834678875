"""The findings of all runs of a session, for one target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hook_layer.format.session_file import SessionRun
from hook_layer.run.session_log import LoggerRun
from rule_runtime.embedded.session_judge import JudgedRun
from rule_runtime.exporting.run_findings import RunFindings

__all__ = ["session_findings"]

_COMPLETED: Final = "Completed"


def session_findings(
    folder: str, runs: Sequence[JudgedRun], logged: Iterable[LoggerRun], library: str
) -> list[RunFindings]:
    """Return the findings of each run.

    Args:
        folder: Folder or URI of the session.
        runs: The runs.
        logged: The runs of logging libraries in the session.
        library: The library whose runs get the findings.
    """
    session = Path(folder).name
    of_library = [each for each in logged if each.library == library]
    return [
        RunFindings(
            name=session if len(runs) == 1 else f"{session}-{each.run.name}",
            folder=folder,
            has_failed=each.run.end not in {None, _COMPLETED},
            logger_run=_logger_run(each.run, of_library),
        ).of_states(each.states)
        for each in runs
    ]


def _logger_run(run: SessionRun, logged: Sequence[LoggerRun]) -> Mapping[str, str]:
    """Return the only one of the run's process, or else of the session; empty if unknown."""
    of_process = [each for each in logged if each.process == run.process]
    found = of_process or logged
    return found[0].run if len(found) == 1 else {}
