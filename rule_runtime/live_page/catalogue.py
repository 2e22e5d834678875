"""Finds the runs below a folder, and keeps a summary of each up to date."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hook_layer.format.errors import FormatError
from hook_layer.format.paths import END_MARKER, INDEX_PREFIX, JOB_FILE
from hook_layer.format.session_file import SESSION_FILE
from hook_layer.storage.base import open_store, path_or_uri
from rule_runtime.engine.result_file import RESULTS_PREFIX
from rule_runtime.live_page.run_summary import run_summary
from rule_runtime.trial.sessions import runs_at

__all__ = ["Catalogue", "Place"]

_MAX_DEPTH: Final = 4
"""Folders between the given one and a run: date, project, session, run."""
_MAX_FOLDERS: Final = 20_000
_MAX_SCAN_S: Final = 20.0
"""Seconds after which a scan ends with what it found: a network folder may be slow."""
_REMOTE_S: Final = 30.0
"""Seconds between two summaries of a run in a bucket."""
_INDEX: Final = INDEX_PREFIX.rstrip("/")
_RESULTS: Final = RESULTS_PREFIX.rstrip("/")
_PARTS: Final = {_INDEX, _RESULTS, "events", "collections"}
"""Folders of a run, in which no other run is."""

Signature = tuple[object, ...]


@dataclass(frozen=True)
class Place:
    """Where a run is.

    Attributes:
        name: Its path below the catalogue's folder; "." for the folder itself.
        path: Folder or URI of the run.
        session: Folder or URI of its session; empty without one.
        is_empty: Whether it is a session in which no run has begun.
    """

    name: str
    path: str
    session: str = ""
    is_empty: bool = False


@dataclass
class Catalogue:
    """The runs of a folder; of a bucket only one session or run.

    Attributes:
        root: Folder or URI.
        version: Increases with each change.
        rows: The summary of each run by name.
        problem: What could not be read; empty if everything was.
    """

    root: str
    version: int = 0
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0
    _signatures: dict[str, Signature] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_remote(self) -> bool:
        """Whether the runs are in a bucket."""
        return "://" in self.root and not self.root.startswith("file://")

    def scan(self, budget_s: float = 0.5) -> bool:
        """Find runs, and read changed ones for some seconds; return whether all are up to date."""
        with self._lock:
            began, problem = time.monotonic(), self.problem
            self.places = {place.name: place for place in self._find()}
            signatures = {name: self._signature(place) for name, place in self.places.items()}
            rows = {
                name: self.rows.get(name, {"id": name, "is_read": False}) for name in signatures
            }
            self.seconds = time.monotonic() - began
            changed = [name for name in rows if self._signatures.get(name) != signatures[name]]
            while changed and time.monotonic() - began < self.seconds + budget_s:
                name = changed.pop(0)
                rows[name] = {"id": name, "is_read": True, **run_summary(self.places[name])}
                self._signatures[name] = signatures[name]
            if rows != self.rows or self.problem != problem:
                self.rows = rows
                self.version += 1
            return not changed

    def _find(self) -> Iterator[Place]:
        self.problem = ""
        try:
            if self.is_remote:
                yield from _remote(self.root)
            else:
                yield from self._below()
        except (OSError, FormatError, ValueError) as error:
            self.problem = str(error)

    def _below(self) -> Iterator[Place]:
        root = Path(path_or_uri(open_store(self.root)))
        if not root.is_dir():
            raise ValueError(f"{root}: there is no such folder")
        began, num_folders, unreadable = time.monotonic(), 0, 0
        waiting: list[tuple[Path, str, int]] = [(root, _session_of(root), 0)]
        while waiting:
            folder, session, depth = waiting.pop()
            num_folders += 1
            if num_folders > _MAX_FOLDERS or time.monotonic() - began > _MAX_SCAN_S:
                self.problem = f"{root} has too many folders: give one of them, for fewer runs"
                return
            try:
                names, folders = _entries(folder)
            except OSError as error:
                unreadable += 1
                self.problem = f"{unreadable} folders cannot be read, such as {folder}: " + str(
                    error.strerror
                )
                continue
            session = str(folder) if SESSION_FILE in names else session
            name = folder.relative_to(root).as_posix()
            if JOB_FILE in names or _INDEX in folders:
                yield Place(name, str(folder), session)
            elif SESSION_FILE in names and not any(each.startswith("run-") for each in folders):
                yield Place(name, str(folder), session, is_empty=True)
            if depth < _MAX_DEPTH:
                inner = sorted(set(folders) - _PARTS, reverse=True)
                waiting += [(folder / each, session, depth + 1) for each in inner]

    def _signature(self, place: Place) -> Signature:
        """Return what changes when a run's files change."""
        if self.is_remote:
            return (int(time.monotonic() / _REMOTE_S),)
        run, session = Path(place.path), Path(place.session or place.path)
        newest = max(_names(run / INDEX_PREFIX), default="")
        results = run / _RESULTS
        watched: Iterable[Path] = (
            *(session / SESSION_FILE, run / JOB_FILE, run / END_MARKER),
            *(run / INDEX_PREFIX / newest, results, *(results / name for name in _names(results))),
        )
        return tuple(_changed_at(path) for path in watched)


def _remote(uri: str) -> Iterator[Place]:
    for run in runs_at(uri):
        session = uri if run.name else ""
        yield Place(run.name or ".", run.path, session)


def _session_of(root: Path) -> str:
    """Return the session's folder if the given folder is one of its runs."""
    is_run = (root / JOB_FILE).exists() and (root.parent / SESSION_FILE).exists()
    return str(root.parent) if is_run else ""


def _entries(folder: Path) -> tuple[set[str], list[str]]:
    """Return the names of all entries, and of folders that are no links."""
    with os.scandir(folder) as entries:
        found = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    return {name for name, _ in found}, [name for name, is_folder in found if is_folder]


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208 - many names, no paths
    return []


def _changed_at(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None
