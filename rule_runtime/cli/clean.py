"""The command `clean`: removes the sessions in a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from hook_layer.format.errors import FormatError
from rule_runtime.cli.evaluation import ExitStatus
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.cli.times import age_text, parsed_time
from rule_runtime.embedded.session_removal import (
    StoredSession,
    remove_session,
    session_in,
    session_paths,
)
from rule_runtime.engine.outcome import counted
from rule_runtime.trial.sessions import session_state

__all__ = ["clean"]

_REMOVE: Final = "remove"
_RUNNING: Final = "keep: may still run"
_RECENT: Final = "keep: recent"
_MOST_DAYS: Final = 36_500
"""Maximum of `--older-than`, a century: longer times than `timedelta` holds are mistakes."""
_UNITS: Final = ("kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class _Plan:
    """A session and what happens to it."""

    stored: StoredSession
    action: str

    @property
    def time(self) -> datetime | None:
        """The session's end, otherwise its start; None if it is not a time."""
        return parsed_time(self.stored.session.ended_at or self.stored.session.started_at)

    def to_json(self, *, is_removed: bool) -> dict[str, Any]:
        session = self.stored.session
        return {
            "Path": str(self.stored.path),
            "Bytes": self.stored.num_bytes,
            "StartedAt": session.started_at,
            "EndedAt": session.ended_at,
            "State": session_state(session),
            "Action": self.action,
            "IsRemoved": is_removed,
        }


def clean(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the sessions.")] = Path("runs"),
    keep: Annotated[
        int, typer.Option(min=0, metavar="N", help="Keep this number of newest sessions.")
    ] = 0,
    older_than: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_DAYS,
            metavar="DAYS",
            help="Remove only sessions that ended more days ago.",
        ),
    ] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without a question.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the sessions in a folder with their sizes, ask, and remove them.

    It removes what `stepwatch run` wrote: `session.json`, and the files of the runs beside it. It
    keeps all other files, sessions without a recorded end, sessions of which a process still
    trains, and runs that were written elsewhere. It skips links. With `--output json` and without
    --yes, it removes nothing.
    """
    with mistakes():
        if not folder.is_dir():
            raise ValueError(f"{folder}: there is no such folder")
        plans = _plans(_sessions(folder), keep, timedelta(days=older_than))
        chosen = [plan for plan in plans if plan.action == _REMOVE]
        is_json = output is OutputFormat.JSON
        if not is_json:
            _print(folder, plans)
        is_agreed = bool(chosen) and (yes or (not is_json and _is_agreed(chosen)))
        failed = _remove(chosen) if is_agreed else []
        if is_json:
            gone = [plan for plan in chosen if is_agreed and plan not in failed]
            listed = [plan.to_json(is_removed=plan in gone) for plan in plans]
            typer.echo(json.dumps(listed, indent=2))
    raise typer.Exit(ExitStatus.NOT_JUDGED if failed else ExitStatus.NO_ISSUE)


def _sessions(folder: Path) -> list[StoredSession]:
    """Return the sessions that can be read, the newest one first."""
    found = []
    for path in session_paths(folder):
        try:
            found.append(session_in(path))
        except FormatError as error:  # noqa: PERF203 - each is a file
            typer.echo(f"stepwatch: {harmless(str(error))}", err=True)
    return sorted(found, key=lambda stored: stored.session.started_at, reverse=True)


def _plans(sessions: Sequence[StoredSession], keep: int, least_age: timedelta) -> list[_Plan]:
    plans = []
    for place, stored in enumerate(sessions):
        plan = _Plan(stored, _REMOVE)
        age = None if plan.time is None else datetime.now(timezone.utc) - plan.time
        if stored.may_run:
            plan = _Plan(stored, _RUNNING)
        elif place < keep or (least_age and (age is None or age < least_age)):
            plan = _Plan(stored, _RECENT)
        plans.append(plan)
    return plans


def _print(folder: Path, plans: Sequence[_Plan]) -> None:
    if not plans:
        typer.echo(f"{folder}: no session is stored here")
        return
    table = Records("session", "size", "age", "state", "action", whole=("size", "age"))
    for plan in plans:
        stored = plan.stored
        table.add_row(
            str(stored.path),
            _size(stored.num_bytes),
            age_text(plan.time),
            session_state(stored.session),
            plan.action,
        )
    Console().print(table)
    if all(plan.action != _REMOVE for plan in plans):
        typer.echo("nothing to remove")


def _is_agreed(chosen: Sequence[_Plan]) -> bool:
    total = _size(sum(plan.stored.num_bytes for plan in chosen))
    try:
        is_agreed = typer.confirm(f"Remove {counted(len(chosen), 'session')}, {total}?")
    except typer.Abort:
        typer.echo()  # ends the line of the question
        raise ValueError("nothing was removed, as nobody answered; add --yes") from None
    if not is_agreed:
        typer.echo("nothing was removed")
    return is_agreed


def _remove(chosen: Sequence[_Plan]) -> list[_Plan]:
    """Remove sessions, report each on standard error, and return those that failed."""
    failed = []
    for plan in chosen:
        path = plan.stored.path
        try:
            kept = remove_session(plan.stored)
        except (OSError, ValueError) as error:
            failed.append(plan)
            typer.echo(harmless(f"stepwatch: {path} was not removed: {error}"), err=True)
            continue
        typer.echo(harmless(f"removed {path}"), err=True)
        if kept:
            names = ", ".join(map(str, kept))
            typer.echo(harmless(f"kept, as Stepwatch did not write them: {names}"), err=True)
    return failed


def _size(num_bytes: int) -> str:
    size, unit = num_bytes / 1000, 0
    while size >= 1000 and unit + 1 < len(_UNITS):  # noqa: PLR2004 - units are of thousands
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"
