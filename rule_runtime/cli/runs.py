"""The command `runs`: lists the sessions in a folder with their verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
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
from rule_runtime.cli.times import age_text, duration_text, parsed_time
from rule_runtime.engine.outcome import RuleStatus, counted
from rule_runtime.trial.sessions import StoredRun, read_session, runs_of

__all__ = ["runs"]

_MAX_NAME: Final = 26
"""Characters of `train-20260131-120000-ab12`: such names stay whole in 80 columns."""
_NOT_EVALUATED: Final = "not evaluated"
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
    def time(self) -> datetime | None:
        return parsed_time(self.session.started_at)

    @property
    def verdict(self) -> str:
        """The findings, the number of runs if there are several, and how the session ended."""
        passed = _NO_ISSUE if self.is_judged else _NOT_EVALUATED
        runs = f"{self.num_runs} runs: " if self.num_runs > 1 else ""
        return f"{runs}{', '.join(self.findings) or passed}{self._end}"

    @property
    def _end(self) -> str:
        session = self.session
        if session.ended_at is None:
            return "; running?"
        if session.stopped_by:
            return "; stopped"
        return f"; exit status {session.exit_status}" if session.exit_status else ""

    @property
    def took(self) -> str:
        ended = parsed_time(self.session.ended_at)
        if ended is None or self.time is None:
            return ""
        return duration_text((ended - self.time).total_seconds())

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
    """List the sessions in a folder: verdict, age, how long they took, last training loss.

    A verdict names the rules that found issues, and says if the session was stopped, failed or has
    no recorded end (`running?`). It is the one that `stepwatch run` stored. `stepwatch evaluate
    SESSION` evaluates again, `stepwatch report SESSION` shows one.
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
    numbers = ("age", "took", "loss")
    table = Records("session", "verdict", *numbers, whole=numbers, max_name=_MAX_NAME)
    for each in found:
        table.add_row(
            Path(each.path).name if Path(each.path) != folder else each.path,
            Text(each.verdict, style="red" if each.findings else ""),
            age_text(each.time),
            each.took,
            _loss_text(each.last_loss),
        )
    Console().print(table)
    typer.echo(f"{counted(len(found), 'session')} in {folder}")


def _loss_text(loss: float | None) -> str:
    if loss is None:
        return ""
    return f"{loss:.4g}" if math.isfinite(loss) else "not finite"


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
    from rule_runtime.reporting.job_verdicts import has_verdict, stored_verdicts  # noqa: PLC0415 - loads numpy
    from rule_runtime.reporting.run_losses import RunLosses  # noqa: PLC0415 - as above

    findings: dict[str, None] = {}
    is_judged = False
    stores = [open_store(run.path) for run in stored]
    losses = [RunLosses(store) for store in stores]
    for store, of_run in zip(stores, losses, strict=True):
        verdicts = stored_verdicts(store.uri, of_run.run)
        is_judged |= has_verdict(verdicts)
        for verdict in verdicts:
            if verdict.status is RuleStatus.ISSUES_FOUND:
                findings[verdict.name] = None
    lasts = (of_run.last for of_run in reversed(losses))
    last_loss = next((loss for loss in lasts if loss is not None), None)
    return _Summary(path, session, tuple(findings), is_judged, len(stored), last_loss)
