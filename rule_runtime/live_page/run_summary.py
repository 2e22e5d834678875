"""Summarises a run for the list of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.errors import FormatError
from hook_layer.format.session_file import SessionFile, SessionRun
from hook_layer.storage.base import open_store
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.live_page.run_files import merged_environment
from rule_runtime.reporting.job_verdicts import (
    JobVerdict,
    diagnosis_of_verdicts,
    has_verdict,
    stored_verdicts,
)
from rule_runtime.reporting.run_losses import RunLosses
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.run_settings import arguments_of, script_position
from rule_runtime.trial.sessions import read_session

if TYPE_CHECKING:
    from rule_runtime.live_page.catalogue import Place

__all__ = ["run_summary", "session_and_run", "state_of"]

_MAX_COMMAND: Final = 1000
"""Characters of a command that the list shows: it may show thousands of runs."""


def run_summary(place: Place) -> dict[str, Any]:
    """Return the row of a run; what cannot be read is named in `problem`."""
    row: dict[str, Any] = {"path": place.path, "problem": "", "is_empty": place.is_empty}
    try:
        store = open_store(place.path)
        session, run = session_and_run(place)
        stores = [open_store(place.session)] if place.session else []
        environment = merged_environment([*stores, store])
        command = environment.get("Command") or (list(session.command) if session else [])
        row |= _command(command if isinstance(command, list) else [])
        git = environment.get("Git")
        facts = git if isinstance(git, dict) else {}
        row |= {"commit": str(facts.get("Commit") or ""), "is_dirty": bool(facts.get("IsDirty"))}
        losses = RunLosses(store)
        row |= _verdicts(stored_verdicts(store.uri, losses.run))
        row |= _losses(losses)
        marker = read_end_marker(store)
        row["state"] = state_of(session, run, has_ended=marker is not None)
        row["started"] = run.started_at if run else session.started_at if session else None
        row["seconds"] = _seconds(
            row["started"], (run and run.ended_at) or (session and session.ended_at)
        )
    except (OSError, FormatError, ValueError) as error:
        row["problem"] = str(error)
    return row


def session_and_run(place: Place) -> tuple[SessionFile | None, SessionRun | None]:
    """Return the session of a run, and what the session says of it.

    Raises:
        FormatError: `session.json` is damaged.
        StorageError: It cannot be read.
    """
    session = read_session(open_store(place.session)) if place.session else None
    name = PurePosixPath(place.path.rstrip("/")).name
    runs = session.runs if session else ()
    return session, next((run for run in runs if run.name == name), None)


def state_of(session: SessionFile | None, run: SessionRun | None, *, has_ended: bool) -> str:
    """Return the state of a run in a word."""
    if run is not None and run.end is not None:
        return run.end.lower()
    if has_ended:
        return "completed"
    is_over = session is not None and session.ended_at is not None
    return "ended" if is_over else "running"


def _command(command: Sequence[Any]) -> dict[str, Any]:
    """Return the command as the list shows it, from its script on, and its arguments."""
    texts = [str(each) for each in command]
    script, *shown = texts[script_position(texts) :] or [""]
    return {
        "command": " ".join([PurePosixPath(script).name, *shown])[:_MAX_COMMAND],
        "arguments": arguments_of(texts),
    }


def _verdicts(verdicts: Sequence[JobVerdict]) -> dict[str, Any]:
    names = [each.name for each in verdicts if each.status is RuleStatus.ISSUES_FOUND]
    diagnosis = diagnosis_of_verdicts(verdicts)
    headline = ", ".join(names) if diagnosis is None else diagnosis.headline
    return {"findings": names, "diagnosis": headline, "is_judged": has_verdict(verdicts)}


def _losses(found: RunLosses) -> dict[str, Any]:
    last = found.last
    is_finite = last is not None and math.isfinite(last)
    return {
        "steps": found.num_steps,
        "last_loss": last if is_finite else None,
        "is_last_bad": last is not None and not is_finite,
        "is_last_sampled": found.is_last_sampled,
        "best_loss": found.best,
        "is_sampled": found.is_sampled,
    }


def _seconds(start: object, end: object) -> float | None:
    try:
        began, ended = (
            datetime.fromisoformat(str(at).replace("Z", "+00:00")) for at in (start, end)
        )
        return (ended - began).total_seconds()
    except (ValueError, TypeError):
        return None
