"""Creates the folder of a new session, which no other session uses."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Final, cast

from hook_layer.format.paths import COLLECTIONS_PREFIX, INDEX_PREFIX, JOB_FILE
from hook_layer.format.session_file import SESSION_FILE, SessionFile, run_folder
from hook_layer.storage.base import CreateStore, Store, open_store
from hook_layer.storage.write_check import check_writable
from rule_runtime.trial.sessions import folder_of_sessions

__all__ = ["default_folder", "make_session_folder"]

_RUNS: Final = "runs"
_RANDOM_BYTES: Final = 2


def default_folder(name: str) -> str:
    """Return a folder in `runs/` from a name, the time and a random part."""
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return str(Path(_RUNS) / f"{name}-{now}-{secrets.token_hex(_RANDOM_BYTES)}")


def make_session_folder(folder: str, session: SessionFile) -> tuple[str, Store]:
    """Write the `session.json` of a new session, and return its folder.

    Args:
        folder: Requested folder or URI. If it holds a session or run, the first free one of
            `<folder>-2`, `<folder>-3`, ... is used.
        session: Content of `session.json`.

    Returns:
        The folder, possibly with a number, and its store.

    Raises:
        ValueError: The folder's URI cannot be opened, or it is a folder of sessions.
        StorageError: The folder is not writable.
    """
    if sessions := folder_of_sessions(folder, "give a new folder"):
        raise ValueError(sessions)
    check_writable(folder)
    for candidate in _candidates(folder):
        store = cast("CreateStore", open_store(candidate))  # as in every store of a URI
        if not _is_used(store) and store.create(SESSION_FILE, session.encode()):
            return candidate, store
    raise AssertionError("there is always a next candidate")


def _candidates(folder: str) -> Iterator[str]:
    yield folder
    for number in count(2):
        yield f"{folder.rstrip('/')}-{number}"


def _is_used(store: Store) -> bool:
    if any(map(store.exists, (SESSION_FILE, JOB_FILE, f"{run_folder(1)}/{JOB_FILE}"))):
        return True
    prefixes = (INDEX_PREFIX, COLLECTIONS_PREFIX)  # of the original client
    return any(next(iter(store.list(prefix)), None) is not None for prefix in prefixes)
