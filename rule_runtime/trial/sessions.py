"""Finds the runs of a session by the session's folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count

from hook_layer.format.paths import JOB_FILE
from hook_layer.format.session_file import (
    MAX_SESSION_FILE_BYTES,
    SESSION_FILE,
    SessionFile,
    parse_session_file,
    run_folder,
)
from hook_layer.storage.base import ObjectNotFoundError, Store, open_store

__all__ = ["StoredRun", "one_run_at", "read_session", "runs_at", "runs_of", "session_state"]


@dataclass(frozen=True)
class StoredRun:
    """A stored run.

    Attributes:
        name: Its name in the session; empty if the path is the run's own folder.
        path: Folder or URI of the trial's root.
    """

    name: str
    path: str


def read_session(store: Store) -> SessionFile | None:
    """Return the content of `session.json`; None if there is none, as in a run's folder.

    Raises:
        SessionFileError: The file is damaged, or another version of Stepwatch wrote it.
        StorageError: The storage cannot be read.
    """
    try:
        data = store.get(SESSION_FILE, 0, MAX_SESSION_FILE_BYTES + 1)
    except ObjectNotFoundError:
        return None
    return parse_session_file(data, file=f"{store.uri}{SESSION_FILE}")


def session_state(session: SessionFile) -> str:
    """Return in words whether a session has ended, and how."""
    if session.ended_at is None:
        return "running, or ended without a record"
    stopped = f", stopped by {session.stopped_by}" if session.stopped_by else ""
    return f"ended with status {session.exit_status}{stopped}"


def runs_of(path: str, store: Store, session: SessionFile) -> list[StoredRun]:
    """Return the runs of a session, including runs newer than the last `session.json`.

    Args:
        path: Folder or URI of the session, the prefix of the runs' paths.
        store: The folder.
        session: Content of its `session.json`.
    """
    root = path.rstrip("/")
    runs = [StoredRun(run.name, run.uri or f"{root}/{run.name}") for run in session.runs]
    known = {run.name for run in runs}
    for number in count(1):
        name = run_folder(number)
        if name in known:
            continue
        if not store.exists(f"{name}/{JOB_FILE}"):
            return runs
        runs.append(StoredRun(name, f"{root}/{name}"))
    return runs


def runs_at(path: str) -> list[StoredRun]:
    """Return the runs of the session at a path; for a run's folder, that run.

    Raises:
        ValueError: No store supports the URI, or the session has no run.
        SessionFileError: `session.json` is damaged, or another version of Stepwatch wrote it.
        StorageError: The storage cannot be read.
    """
    store = open_store(os.path.expanduser(path))  # noqa: PTH111 - may be a URI
    session = read_session(store)
    if session is None:
        return [StoredRun("", path)]
    runs = runs_of(path, store, session)
    if not runs:
        raise ValueError(f"{path}: no run has begun in this session")
    return runs


def one_run_at(path: str) -> str:
    """Return the folder of a session's only run; for a run, its own folder.

    Raises:
        ValueError: See `runs_at`, or the session has several runs.
        SessionFileError: See `runs_at`.
        StorageError: The storage cannot be read.
    """
    runs = runs_at(path)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise ValueError(
            f"{path} is a session with {len(runs)} runs: {names}; give the folder of one, such as "
            f"{runs[-1].path}"
        )
    return runs[0].path
