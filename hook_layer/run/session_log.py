"""Messages between the processes of one watched command: small files in a folder.

The command may be anything that eventually starts Python: a shell script, a launcher, a search that
trains in a pool. Each new training takes the next number here, and becomes a run of the session.
The watcher of the command reads the runs, and can ask all of them to stop.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from hook_layer.format.errors import FormatError, JobFileError, SessionFileError
from hook_layer.format.job_file import StopFile, parse_stop_file
from hook_layer.format.json_document import Document, load_object
from hook_layer.format.paths import STOP_FILE
from hook_layer.format.session_file import MAX_SESSION_FILE_BYTES, SessionRun, run_folder
from hook_layer.process.file_lock import HAS_LOCKS, FileLock, is_locked

__all__ = [
    "FRAMEWORKS_FILE",
    "LACKING_FILE",
    "NOTES_VARIABLE",
    "LoggerRun",
    "NotedRun",
    "SessionLog",
    "is_watched",
    "now_text",
]

logger = logging.getLogger("stepwatch")

NOTES_VARIABLE: Final = "STEPWATCH_RUN_NOTES"
"""Variable with the folder."""
FRAMEWORKS_FILE: Final = "frameworks"
"""Names of packages for training, for Python environments without this package."""
LACKING_FILE: Final = "lacking"
"""Path of such a Python that imported one of these packages."""

_SESSION_FILE: Final = "session"
_IMPORTED: Final = "imported-"
_TRAINING: Final = "training-"
_UNWATCHED: Final = "unwatched-"
_REASON: Final = "reason-"
_LOGGER: Final = "logger-"
_ENDED: Final = ".ended"
_PROGRAM: Final = "Program"
_RUN: Final = re.compile(r"run-([1-9][0-9]*)")


def is_watched() -> bool:
    """Return whether `stepwatch run` watches this process, and so prints findings itself."""
    return bool(os.environ.get(NOTES_VARIABLE))


def now_text() -> str:
    """Return the time as ISO 8601 in UTC, in seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class LoggerRun(NamedTuple):
    """A run of a logging library in a process of the session.

    Attributes:
        process: Id of the process.
        library: The library, such as `wandb`.
        run: What names the run there.
    """

    process: int
    library: str
    run: dict[str, str]


@dataclass(frozen=True)
class NotedRun:
    """A run in the notes.

    Attributes:
        run: The run.
        is_over: Whether the run or its process has ended.
    """

    run: SessionRun
    is_over: bool


class SessionLog:
    """The notes of one session."""

    _locks: ClassVar[dict[str, FileLock]] = {}
    """Locks by path; held until the run or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._killed_at: dict[str, str] = {}

    @classmethod
    def make(
        cls, folder: Path, frameworks: Iterable[str], *, root: str = "", max_runs: int = 1
    ) -> SessionLog:
        """Create the notes in a new folder.

        Args:
            folder: The folder.
            frameworks: Names of packages for training.
            root: URI of the session, ending in "/"; each run gets a subfolder.
            max_runs: Maximum number of watched runs.
        """
        folder.mkdir()
        (folder / FRAMEWORKS_FILE).write_text("\n".join(frameworks))
        (folder / _SESSION_FILE).write_text(json.dumps({"Root": root, "MaxRuns": max_runs}))
        return cls(folder)

    @classmethod
    def of_environment(cls) -> SessionLog | None:
        """Return the notes of the session that this process belongs to; None outside of one."""
        named = os.environ.get(NOTES_VARIABLE, "")
        return cls(Path(named)) if named and Path(named).is_dir() else None

    @property
    def root(self) -> str:
        """URI of the session, ending in "/"; empty if there is none."""
        return str(self._session.get("Root", ""))

    # Written by watched processes -----------------------------------------------------------------

    def imported(self, framework: str) -> None:
        """Record that a package for training was imported."""
        with suppress(OSError):
            (self._folder / (_IMPORTED + framework)).touch(exist_ok=False)

    def process_trains(self) -> None:
        """Record that this process trains, until it ends."""
        path = self._folder / f"{_TRAINING}{os.getpid()}"
        if str(path) not in self._locks:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # of an earlier process with this id
                self._create(path.name, b"")

    def begin_run(self, run_id: str, started_at: str, uri: str | None = None) -> SessionRun | None:
        """Begin the next run of the session.

        Args:
            run_id: The run's id.
            started_at: Start, ISO 8601 in UTC.
            uri: The trial's root, if it is outside of the session's folder.

        Returns:
            The run; None if the maximum of watched runs is reached, or the notes were removed.
        """
        try:
            program = _program()
            for number in range(1, int(self._session["MaxRuns"]) + 1):
                name = run_folder(number)
                if (self._folder / name).exists():
                    continue
                attempt = 1 + self._num_ended(program)
                place = uri or f"{self.root}{name}/"
                run = SessionRun(name, place, run_id, started_at, os.getpid(), attempt)
                content = json.dumps({**run.to_json(), _PROGRAM: program}).encode()
                if self._create(name, content):
                    return run
            with (self._folder / f"{_UNWATCHED}{os.getpid()}").open("ab") as file:
                file.write(b".")
        except (OSError, ValueError, KeyError) as error:
            logger.warning("this run is not watched: %s", error)
        return None

    def note_reason(self, reason: str) -> None:
        """Record why nothing of this process is captured."""
        with suppress(OSError):
            self._replace(f"{_REASON}{os.getpid()}", reason.encode())

    def note_logger(self, logger_run: LoggerRun) -> None:
        """Record a run of a logging library; recording it again changes nothing."""
        content = json.dumps(logger_run).encode()
        digest = hashlib.sha256(content).hexdigest()
        with suppress(OSError):
            self._replace(f"{_LOGGER}{digest}", content)

    def end_run(self, name: str, end: str, details: str | None = None) -> None:
        """Record the end of a run of this process; the process may continue."""
        said = {"EndedAt": now_text(), "End": end, "Details": details}
        with suppress(OSError):
            self._replace(f"{name}{_ENDED}", json.dumps(said).encode())
        lock = self._locks.pop(str(self._folder / name), None)
        if lock is not None:
            lock.release()

    @property
    def stop_request(self) -> StopFile | None:
        """Request to stop all runs of this session; None without one."""
        try:
            return parse_stop_file((self._folder / STOP_FILE).read_bytes(), file=STOP_FILE)
        except (OSError, JobFileError):
            return None

    # Written and read by the watcher --------------------------------------------------------------

    def request_stop(self, request: StopFile) -> None:
        """Stop all runs of this session.

        Raises:
            OSError: The request cannot be written.
        """
        self._replace(STOP_FILE, replace(request, run_id=None).encode())

    @property
    def frameworks(self) -> list[str]:
        """Names of imported packages for training."""
        return sorted(path.name[len(_IMPORTED) :] for path in self._folder.glob(f"{_IMPORTED}*"))

    @property
    def imported_at(self) -> float | None:
        """Time of the first such import, seconds since 1970; None without any."""
        with suppress(OSError):
            times = (path.stat().st_mtime for path in self._folder.glob(f"{_IMPORTED}*"))
            return min(times, default=None)
        return None

    @property
    def reason(self) -> str | None:
        """Why nothing is captured, as reported by a process; None without a report."""
        for path in sorted(self._folder.glob(f"{_REASON}*")):
            with suppress(OSError, UnicodeDecodeError):
                return path.read_text(encoding="utf-8")[:4096]
        return None

    @property
    def lacking(self) -> str | None:
        """A Python that imported a package for training but lacks this package; or None."""
        try:
            return (self._folder / LACKING_FILE).read_text()[:4096]
        except (OSError, UnicodeDecodeError):
            return None

    @property
    def trainings(self) -> list[int]:
        """Ids of running processes that train."""
        paths = sorted(self._folder.glob(f"{_TRAINING}*"))
        return [int(path.name[len(_TRAINING) :]) for path in paths if is_locked(path)]

    @property
    def runs(self) -> list[NotedRun]:
        """The runs in order of their start."""
        return [run for path in self._run_paths() if (run := self._noted(path)) is not None]

    @property
    def logger_runs(self) -> list[LoggerRun]:
        """The runs of logging libraries that the processes logged to."""
        paths = self._folder.glob(f"{_LOGGER}*")
        return [LoggerRun(*json.loads(path.read_bytes())) for path in paths]

    @property
    def num_not_watched(self) -> int:
        """Number of further runs that are not watched."""
        return sum(path.stat().st_size for path in self._folder.glob(f"{_UNWATCHED}*"))

    # Implementation -------------------------------------------------------------------------------

    @property
    def _session(self) -> dict[str, Any]:
        return _read(self._folder / _SESSION_FILE)

    def _run_paths(self) -> list[Path]:
        found = ((_RUN.fullmatch(path.name), path) for path in self._folder.glob("run-*"))
        numbered = ((int(match[1]), path) for match, path in found if match is not None)
        return [path for _, path in sorted(numbered)]

    def _noted(self, path: Path) -> NotedRun | None:
        try:
            content = _read(path)
            is_over = HAS_LOCKS and not is_locked(path)  # before the end is read
            ended = _read(_ended_path(path)) if _ended_path(path).exists() else {}
            run = SessionRun.from_json(
                {**content, **ended}, Document(path.name, SessionFileError), ""
            )
        except (OSError, FormatError) as error:
            logger.debug("%s is not read: %s", path, error)
            return None
        if is_over and not ended:
            ended_at = self._killed_at.setdefault(run.name, now_text())
            run = replace(run, end="Killed", ended_at=ended_at)
        return NotedRun(run, is_over or bool(ended))

    def _num_ended(self, program: list[str]) -> int:
        """Return the number of ended processes that trained with the same program."""
        processes = set()
        for path in self._run_paths():
            content = _read(path)
            # This process may have ended a run and train again. A run without an end is from before
            # `exec` replaced the program of this process.
            is_ours = content["Process"] == os.getpid() and _ended_path(path).exists()
            if content[_PROGRAM] == program and not is_ours and not is_locked(path):
                processes.add(content["Process"])
        return len(processes)

    def _create(self, name: str, content: bytes) -> bool:
        """Create a file atomically, with content and lock; return False if it exists.

        Raises:
            OSError: It cannot be created, or this file system has no locks.
        """
        path = self._folder / name
        hidden = path.with_name(f".{name}-{os.getpid()}-{threading.get_ident()}")
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, content)
            lock = FileLock.take(descriptor)
            os.link(hidden, path)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, FileExistsError):
                return False
            raise
        finally:
            hidden.unlink()
        if lock is not None:
            self._locks[str(path)] = lock
        return True

    def _replace(self, name: str, content: bytes) -> None:
        hidden = self._folder / f".{name}-{os.getpid()}"
        hidden.write_bytes(content)
        hidden.replace(self._folder / name)


def _read(path: Path) -> dict[str, Any]:
    return load_object(
        path.read_bytes(), file=path.name, error=SessionFileError, max_bytes=MAX_SESSION_FILE_BYTES
    )


def _ended_path(run: Path) -> Path:
    return run.with_name(f"{run.name}{_ENDED}")


def _program() -> list[str]:
    """Return the identity of this process's program; processes of a pool have their own."""
    processes: Any = sys.modules.get("multiprocessing.process")
    is_of_pool = processes is not None and processes.parent_process() is not None
    return [*sys.orig_argv, *([str(os.getpid())] if is_of_pool else [])]
