"""Finds the sessions in a folder and removes the files that Stepwatch wrote into them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hook_layer.format.paths import (
    COLLECTIONS_PREFIX,
    END_MARKER,
    ENVIRONMENT_FILE,
    INDEX_PREFIX,
    JOB_FILE,
    STOP_FILE,
)
from hook_layer.format.session_file import SESSION_FILE, SessionFile, parse_session_file
from hook_layer.process.file_lock import is_locked
from hook_layer.run.folder_claim import CLAIM_FILE
from rule_runtime.embedded.console_log import CONSOLE_LOG
from rule_runtime.embedded.system_metrics import SYSTEM_METRICS_FILE
from rule_runtime.engine.result_file import RESULTS_PREFIX

__all__ = ["StoredSession", "remove_session", "session_in", "session_paths"]

_RUN: Final = re.compile(r"run-[1-9][0-9]*")
_EVENTS_PREFIX: Final = "events/"
_FOLDERS: Final = tuple(
    prefix.rstrip("/")
    for prefix in (INDEX_PREFIX, _EVENTS_PREFIX, COLLECTIONS_PREFIX, RESULTS_PREFIX)
)
_FILES: Final = (END_MARKER, STOP_FILE, CLAIM_FILE, ENVIRONMENT_FILE, JOB_FILE)
"""`job.json` is last: without it, the rest of a run would not be found again."""
_FILES_OF_SESSION: Final = (CONSOLE_LOG, ENVIRONMENT_FILE, SYSTEM_METRICS_FILE)


@dataclass(frozen=True)
class StoredSession:
    """A session in a local folder.

    Attributes:
        path: Its folder.
        session: Content of its `session.json`.
        num_bytes: Size of the files that `remove_session` removes.
    """

    path: Path
    session: SessionFile
    num_bytes: int

    @property
    def may_run(self) -> bool:
        """Whether its end is not recorded, or a process still writes to one of its runs."""
        claims = (run / CLAIM_FILE for run in _runs(self.path))
        return self.session.ended_at is None or any(map(is_locked, claims))


def session_paths(folder: Path) -> list[Path]:
    """Return the folders of the sessions at a path: the folder itself, or those in it.

    Links are skipped, because they may lead out of the folder.
    """
    if _is_file(folder / SESSION_FILE):
        return [folder]
    paths = sorted(path for path in folder.iterdir() if _is_folder(path))
    return [path for path in paths if _is_file(path / SESSION_FILE)]


def session_in(path: Path) -> StoredSession:
    """Return the session in a folder.

    Raises:
        SessionFileError: `session.json` is damaged, or another version of Stepwatch wrote it.
        OSError: The folder cannot be read.
    """
    file = path / SESSION_FILE
    session = parse_session_file(file.read_bytes(), file=str(file))
    return StoredSession(path, session, sum(map(_size, [*_parts(path), file])))


def remove_session(stored: StoredSession) -> list[Path]:
    """Remove what Stepwatch wrote into a session's folder, and the folder if it is empty then.

    Returns:
        Other files and folders in it, which are kept.

    Raises:
        ValueError: The session may still run.
        OSError: A file cannot be removed.
    """
    if session_in(stored.path).may_run:
        raise ValueError(f"{stored.path} may still run: its end is not recorded, or a run trains")
    runs = _runs(stored.path)
    for part in _parts(stored.path):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
    kept = [path for run in runs for path in _remove_if_empty(run)]
    (stored.path / SESSION_FILE).unlink()  # last, so that a broken-off removal can be repeated
    in_runs = {path.parent for path in kept}
    kept += [path for path in _remove_if_empty(stored.path) if path not in in_runs]
    return kept


def _parts(session: Path) -> Iterator[Path]:
    """Yield the files and folders of a session and its runs, besides `session.json`."""
    yield from (session / name for name in _FILES_OF_SESSION if _is_file(session / name))
    for run in _runs(session):
        yield from (run / name for name in _FOLDERS if _is_folder(run / name))
        yield from (run / name for name in _FILES if _is_file(run / name))


def _runs(session: Path) -> list[Path]:
    """Return the folders of a session's runs that are in its folder."""
    found = (path for path in session.iterdir() if _RUN.fullmatch(path.name))
    return sorted(path for path in found if _is_folder(path) and _is_file(path / JOB_FILE))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _size(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    folders = os.walk(path) if path.is_dir() else [(str(path.parent), (), [path.name])]
    return sum(os.lstat(Path(at, name)).st_size for at, _, names in folders for name in names)


def _remove_if_empty(folder: Path) -> list[Path]:
    """Remove a folder if it is empty; otherwise return what it contains."""
    content = sorted(folder.iterdir())
    if not content:
        folder.rmdir()
    return content
