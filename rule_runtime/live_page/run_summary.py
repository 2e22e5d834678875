"""Summarises a run for the list of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hook_layer.format.errors import FormatError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.session_file import SessionFile, SessionRun
from hook_layer.storage.base import Store, open_store
from rule_runtime.diagnosis.diagnosis import diagnose, symptoms_of
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.live_page.run_files import read_environment
from rule_runtime.reporting.job_verdicts import JobVerdict, has_verdict, stored_verdicts
from rule_runtime.reporting.tensor_kinds import TensorKinds
from rule_runtime.trial.job_file import usable_job_file
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.sessions import read_session
from rule_runtime.trial.step_index import iter_step_files, list_index_files

if TYPE_CHECKING:
    from rule_runtime.live_page.catalogue import Place

__all__ = ["arguments_of", "run_summary", "session_and_run", "state_of"]

_MOST_FILES: Final = 200
_MOST_BYTES: Final = 8 << 20
"""Files and bytes of index files that a summary reads, evenly over the run."""
_MOST_LAST_FILES: Final = 50
"""Last index files that are searched for a training loss, which a validation pass may follow."""
_TRAINING: Final = frozenset({ModeKeys.TRAIN, ModeKeys.GLOBAL})
_SCRIPT: Final = (".py", ".sh")


def run_summary(place: Place) -> dict[str, Any]:
    """Return the row of a run; what cannot be read is named in `problem`."""
    row: dict[str, Any] = {"path": place.path, "problem": "", "is_empty": place.is_empty}
    try:
        store = open_store(place.path)
        session, run = session_and_run(place)
        stores = [open_store(place.session)] if place.session else []
        environment = read_environment([*stores, store])
        command = environment.get("Command") or (list(session.command) if session else [])
        given = [str(each) for each in command] if isinstance(command, list) else []
        git = environment.get("Git")
        job = usable_job_file(store)
        script = _script(given)
        shown = " ".join([PurePosixPath(given[script]).name, *given[script + 1 :]]) if given else ""
        row |= {"command": shown, "arguments": arguments_of(given)}
        facts = git if isinstance(git, dict) else {}
        row |= {"commit": str(facts.get("Commit") or ""), "is_dirty": bool(facts.get("IsDirty"))}
        row |= _verdicts(stored_verdicts(store.uri, None if job is None else job.run_id))
        row |= _losses(store, None if job is None else job.run_id)
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


def arguments_of(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a command by name; positional ones are numbered."""
    at = _script(command)
    found: dict[str, str] = {"script": PurePosixPath(command[at]).name} if command else {}
    name = ""
    for each in command[at + 1 :]:
        if each.startswith("-") and not _is_number(each):
            name, has_value, value = each.lstrip("-").partition("=")
            found[name] = value if has_value else "true"
            name = "" if has_value else name
        elif name:
            found[name], name = each, ""
        else:
            found[f"#{len(found)}"] = each
    return found


def _script(command: Sequence[str]) -> int:
    """Return the position of the script in a command."""
    return next((at for at, each in enumerate(command) if each.endswith(_SCRIPT)), 0)


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(text))
    return False


def _verdicts(verdicts: Sequence[JobVerdict]) -> dict[str, Any]:
    found = [each for each in verdicts if each.status is RuleStatus.ISSUES_FOUND]
    diagnosis = diagnose(symptoms_of({each.name: each.evidence for each in found}))
    names = [each.name for each in found]
    headline = ", ".join(names) if diagnosis is None else diagnosis.headline
    return {"findings": names, "diagnosis": headline, "is_judged": has_verdict(verdicts)}


def _losses(store: Store, run: str | None) -> dict[str, Any]:
    """Return number of steps, last and best training loss."""
    keys = [key for key, _ in list_index_files(store)]
    steps = len({key.rpartition("_worker_")[0] for key in keys})
    first = [key for key in keys if key.endswith("_worker_0.json")] or keys
    if not keys:
        return {"steps": 0, "last_loss": None, "best_loss": None, "is_sampled": False}
    count = min(len(first), _MOST_FILES, max(2, _MOST_BYTES // max(store.size(first[-1]), 1)))
    chosen = [first[at] for at in np.linspace(0, len(first) - 1, count).astype(int)]
    reader = _LossReader(store, run)
    losses = list(reader.losses(chosen))
    is_sampled = len(chosen) < len(first)
    ends = reversed(first[-_MOST_LAST_FILES:] if is_sampled else ())
    newest = next((loss for key in ends for loss in reader.losses([key])), None)
    finite = [loss for loss in losses if math.isfinite(loss)]
    last = newest if newest is not None else losses[-1] if losses else None
    return {
        "steps": steps,
        "last_loss": None if last is None or not math.isfinite(last) else last,
        "is_last_bad": last is not None and not math.isfinite(last),
        "is_last_sampled": is_sampled and newest is None,
        "best_loss": min(finite, default=None),
        "is_sampled": is_sampled,
    }


class _LossReader:
    """Reads training losses from index files of a run."""

    def __init__(self, store: Store, run: str | None) -> None:
        self._store, self._run = store, run
        self._kinds = TensorKinds(store)

    def losses(self, keys: Sequence[str]) -> Iterator[float]:
        """Yield the training losses of some files in step order; NaN if one is not finite."""
        for file in iter_step_files(self._store, keys):
            index = file.index
            block = None if index is None or index.run != self._run else index.statistics
            if index is None or block is None or index.mode not in _TRAINING:
                continue
            group = self._kinds.group(block.tensors)
            for at in group.scalars["losses"][:1]:
                row = group.rows[at]
                is_bad = block.column("nan")[row] + block.column("inf")[row] > 0
                yield math.nan if is_bad else float(block.column("mean")[row])


def _seconds(start: object, end: object) -> float | None:
    try:
        began, ended = (
            datetime.fromisoformat(str(at).replace("Z", "+00:00")) for at in (start, end)
        )
        return (ended - began).total_seconds()
    except (ValueError, TypeError):
        return None
