"""The runs of a session, found by the session's folder."""

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

__all__ = ["StoredRun", "one_run_at", "read_session", "runs_at", "runs_of"]


@dataclass(frozen=True)
class StoredRun:
    """A run that is stored.

    Attributes:
        name: Its name in its session; empty where it was given by its own folder.
        path: Folder or URI of the trial's root.
    """

    name: str
    path: str


def read_session(store: Store) -> SessionFile | None:
    """Return what `session.json` says; None where there is none, as in the folder of a run.

    Raises:
        SessionFileError: The file is damaged, or another version of Stepwatch wrote it.
        StorageError: The storage cannot be read.
    """
    try:
        data = store.get(SESSION_FILE, 0, MAX_SESSION_FILE_BYTES + 1)
    except ObjectNotFoundError:
        return None
    return parse_session_file(data, file=f"{store.uri}{SESSION_FILE}")


def runs_of(path: str, store: Store, session: SessionFile) -> list[StoredRun]:
    """Return the runs of a session, also those that began after `session.json` was last written.

    Args:
        path: Folder or URI of the session, as the paths of its runs are to begin.
        store: The folder.
        session: What its `session.json` says.
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
    """Return the runs of the session at a path; of the folder of a run that run alone.

    Raises:
        ValueError: There is no store for the URI, or the session has no run.
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
    """Return the folder of the one run of a session; of a run the folder itself.

    Raises:
        ValueError: As of `runs_at`, or the session has several runs.
        SessionFileError: As of `runs_at`.
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
