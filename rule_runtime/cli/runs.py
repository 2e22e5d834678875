"""The command `runs`: lists the sessions in a folder with their verdicts."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from hook_layer.format.errors import FormatError
from hook_layer.format.session_file import SESSION_FILE, SessionFile
from hook_layer.storage.base import StorageError, open_store
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes
from rule_runtime.cli.tables import Records
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.trial.sessions import StoredRun, read_session, runs_of, session_state

__all__ = ["runs"]

_LAST_FILES: Final = 20
"""Number of last index files that are searched for the last training loss."""
_LOSSES: Final = "losses"
_NOT_JUDGED: Final = "not evaluated"
_NO_ISSUE: Final = "no issue"


@dataclass(frozen=True)
class _Summary:
    """A session's path, file, verdicts and last losses."""

    path: str
    session: SessionFile
    findings: tuple[str, ...]
    is_judged: bool
    num_runs: int
    last_loss: float | None

    @property
    def verdict(self) -> str:
        if self.findings:
            return ", ".join(self.findings)
        return _NO_ISSUE if self.is_judged else _NOT_JUDGED

    @property
    def state(self) -> str:
        return session_state(self.session)

    @property
    def seconds(self) -> float | None:
        if self.session.ended_at is None:
            return None
        ended, started = map(_time, (self.session.ended_at, self.session.started_at))
        return None if ended is None or started is None else (ended - started).total_seconds()

    def to_json(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(self.session.encode())
        is_finite = self.last_loss is not None and math.isfinite(self.last_loss)
        return {
            "Path": self.path,
            **described,
            "Findings": list(self.findings),
            "IsJudged": self.is_judged,
            "LastLoss": self.last_loss if is_finite else None,
        }


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the sessions.")] = Path("runs"),
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the sessions in a folder: verdict, when and how long they trained, last loss.

    Verdicts are those that `stepwatch run` left beside the tensors. `stepwatch evaluate SESSION`
    judges again, `stepwatch report SESSION` shows one.
    """
    with mistakes():
        if not folder.is_dir():
            raise ValueError(f"{folder}: there is no such folder")
        found = list(_summaries(folder))
        if not found:
            raise ValueError(f"{folder}: no session is stored here")
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([each.to_json() for each in found], indent=2))
        return
    table = Records("session", "verdict", "runs", "started", "took", "last loss", "state")
    for each in found:
        table.add_row(
            each.path,
            Text(each.verdict, style="red" if each.findings else ""),
            str(each.num_runs),
            each.session.started_at.replace("T", " ").removesuffix("Z"),
            "" if each.seconds is None else f"{each.seconds:.0f} s",
            "" if each.last_loss is None else f"{each.last_loss:.4g}",
            each.state,
        )
    Console().print(table)


def _summaries(folder: Path) -> Iterator[_Summary]:
    paths = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    for path in paths:
        if not (path / SESSION_FILE).exists():
            continue
        try:
            store = open_store(path)
            session = read_session(store)
            if session is not None:
                yield _summary(str(path), session, runs_of(str(path), store, session))
        except (FormatError, StorageError) as error:
            typer.echo(f"stepwatch: {error}", err=True)


def _summary(path: str, session: SessionFile, stored: list[StoredRun]) -> _Summary:
    from rule_runtime.reporting.job_verdicts import stored_verdicts  # noqa: PLC0415 - loads numpy
    from rule_runtime.trial.run_files import current_run  # noqa: PLC0415 - as above

    findings: dict[str, None] = {}
    is_judged = False
    for run in stored:
        store = open_store(run.path)
        for verdict in stored_verdicts(store.uri, current_run(store)):
            is_judged |= not verdict.is_not_judged
            if verdict.status is RuleStatus.ISSUES_FOUND:
                findings[verdict.name] = None
    losses = (_last_loss(run.path) for run in reversed(stored))
    last_loss = next((loss for loss in losses if loss is not None), None)
    return _Summary(path, session, tuple(findings), is_judged, len(stored), last_loss)


def _last_loss(path: str) -> float | None:
    """Return the last saved training loss of a run; None if there is none."""
    from hook_layer.format.modes import ModeKeys  # noqa: PLC0415 - loads numpy
    from rule_runtime.trial.step_index import list_index_files, load_step_files  # noqa: PLC0415
    from rule_runtime.trial.step_view import StepReader  # noqa: PLC0415 - as above

    store = open_store(path)
    keys = deque((key for key, _ in list_index_files(store)), maxlen=_LAST_FILES)
    reader = StepReader(store)
    for file in reversed(load_step_files(store, list(keys))):
        if file.index is None or file.index.mode not in {ModeKeys.TRAIN, ModeKeys.GLOBAL}:
            continue
        rows = reader.view(file.step, [file], num_workers=1).tensors(collections=[_LOSSES])
        for loss in islice(rows.column("mean"), 1):
            return float(loss)
    return None


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
