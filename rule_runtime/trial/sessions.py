"""Finds the runs of a session by the session's folder, and the sessions in a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from typing import Final

from hook_layer.format.paths import INDEX_PREFIX, JOB_FILE
from hook_layer.format.session_file import (
    MAX_SESSION_FILE_BYTES,
    SESSION_FILE,
    SessionFile,
    parse_session_file,
    run_folder,
)
from hook_layer.storage.base import ObjectNotFoundError, Store, open_store

__all__ = [
    "StoredRun",
    "folder_of_sessions",
    "one_run_at",
    "read_session",
    "runs_at",
    "runs_of",
    "session_state",
]

_MAX_NAMED_SESSIONS: Final = 10
"""Sessions that a message names."""
_MAX_FOLDERS: Final = 50
"""Entries of a folder in which sessions are searched: each costs two requests."""


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
        ValueError: No store supports the URI, the session has no run, or the folder has sessions
            instead of a run.
        SessionFileError: `session.json` is damaged, or another version of Stepwatch wrote it.
        StorageError: The storage cannot be read.
    """
    store = open_store(os.path.expanduser(path))  # noqa: PTH111 - may be a URI
    session = read_session(store)
    if session is None:
        if sessions := folder_of_sessions(path):
            raise ValueError(sessions)
        return [StoredRun("", path)]
    runs = runs_of(path, store, session)
    if not runs:
        raise ValueError(f"{path}: no run has begun in this session")
    return runs


def folder_of_sessions(path: str, advice: str = "") -> str:
    """Return a sentence that names the sessions in a folder; "" if it has none, or is one itself.

    Args:
        path: Folder or URI.
        advice: What to do; by default, to give one of the sessions.

    Raises:
        ValueError: No store supports the URI.
        StorageError: The storage cannot be read.
    """
    store = open_store(os.path.expanduser(path))  # noqa: PTH111 - may be a URI
    is_one = any(map(store.exists, (JOB_FILE, SESSION_FILE)))
    is_one = is_one or next(store.list(INDEX_PREFIX), None) is not None
    names = [] if is_one else _session_names(store)
    if not names:
        return ""
    named = ", ".join(names[:_MAX_NAMED_SESSIONS])
    more = " and more" if len(names) > _MAX_NAMED_SESSIONS else ""
    advice = advice or f"give one of them, such as {path.rstrip('/')}/{names[0]}"
    return f"{path} is a folder of sessions: {named}{more}; {advice}"


def _session_names(store: Store) -> list[str]:
    """Return the folders with a session, at most one more than a message names."""
    names: list[str] = []
    after = None
    for _ in range(_MAX_FOLDERS):
        key = next(store.list("", after), None)
        if key is None or len(names) > _MAX_NAMED_SESSIONS:
            break
        name, is_folder, _ = key.partition("/")
        if is_folder and store.exists(f"{name}/{SESSION_FILE}"):
            names.append(name)
        after = f"{name}0" if is_folder else key  # "0" follows "/", so it skips the folder
    return names


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
