"""`session.json`: the watched command of a session, and its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hook_layer.format.errors import SessionFileError
from hook_layer.format.json_document import Document, load_object

__all__ = [
    "MAX_SESSION_FILE_BYTES",
    "SESSION_FILE",
    "SessionFile",
    "SessionRun",
    "parse_session_file",
    "run_folder",
]

SESSION_FILE: Final = "session.json"
MAX_SESSION_FILE_BYTES: Final = 4 << 20
"""Maximum size of `session.json`, enough for thousands of runs."""

_SCHEMA_VERSION: Final = 1


def run_folder(number: int) -> str:
    """Return the folder name of a session's run, counted from 1."""
    return f"run-{number}"


@dataclass(frozen=True)
class SessionRun:
    """One run of a session.

    Attributes:
        name: Name of the run in its session.
        uri: The trial's root; empty for the session's subfolder with the run's name.
        run_id: The run's id.
        started_at: Start, ISO 8601 in UTC.
        process: Id of the process that trained.
        attempt: How often the same program has started in this session, including this time.
        ended_at: End; None while it trains.
        end: Kind of end: `Completed`, `Failed`, `Stopped` or `Killed`; None while it trains.
        details: The error or the reason behind `end`.
    """

    name: str
    uri: str
    run_id: str
    started_at: str
    process: int
    attempt: int = 1
    ended_at: str | None = None
    end: str | None = None
    details: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON, without unknown values."""
        content = {
            "Name": self.name,
            "Uri": self.uri or None,
            "RunId": self.run_id,
            "StartedAt": self.started_at,
            "Process": self.process,
            "Attempt": self.attempt,
            "EndedAt": self.ended_at,
            "End": self.end,
            "Details": self.details,
        }
        return {name: value for name, value in content.items() if value is not None}

    @property
    def has_ended(self) -> bool:
        """Whether its training has ended."""
        return self.end is not None

    @classmethod
    def from_json(cls, content: Mapping[str, Any], document: Document, path: str) -> SessionRun:
        """Parse the result of `to_json`.

        Raises:
            FormatError: A value is missing or has a wrong type.
        """
        return cls(
            name=document.text(content.get("Name"), f"{path}Name"),
            uri=document.text(content.get("Uri", ""), f"{path}Uri"),
            run_id=document.text(content.get("RunId"), f"{path}RunId"),
            started_at=document.text(content.get("StartedAt"), f"{path}StartedAt"),
            process=document.count(content.get("Process"), f"{path}Process"),
            attempt=document.count(content.get("Attempt", 1), f"{path}Attempt"),
            ended_at=document.optional_text(content.get("EndedAt"), f"{path}EndedAt"),
            end=document.optional_text(content.get("End"), f"{path}End"),
            details=document.optional_text(content.get("Details"), f"{path}Details"),
        )


@dataclass(frozen=True)
class SessionFile:
    """Content of `session.json`.

    Attributes:
        command: The watched command.
        working_directory: Folder in which it was started.
        started_at: Start, ISO 8601 in UTC.
        runs: The watched runs, in order of their start.
        runs_not_watched: Number of further runs that are not watched.
        stopped_by: Name of the rule whose finding stopped the session; None without any.
        ended_at: End of the command; None while it is watched.
        exit_status: Its exit status, as a shell reports it; None while it is watched.
    """

    command: tuple[str, ...]
    working_directory: str
    started_at: str
    runs: Sequence[SessionRun] = ()
    runs_not_watched: int = 0
    stopped_by: str | None = None
    ended_at: str | None = None
    exit_status: int | None = None

    def encode(self) -> bytes:
        """Return the file's bytes."""
        content = {
            "SchemaVersion": _SCHEMA_VERSION,
            "Command": list(self.command),
            "WorkingDirectory": self.working_directory,
            "StartedAt": self.started_at,
            "EndedAt": self.ended_at,
            "ExitStatus": self.exit_status,
            "StoppedBy": self.stopped_by,
            "RunsNotWatched": self.runs_not_watched,
            "Runs": [run.to_json() for run in self.runs],
        }
        known = {name: value for name, value in content.items() if value is not None}
        return json.dumps(known, indent=1).encode()


def parse_session_file(data: bytes, *, file: str) -> SessionFile:
    """Parse a `session.json`.

    Raises:
        SessionFileError: It is not a session file, or has a newer version.
    """
    content = load_object(data, file=file, error=SessionFileError, max_bytes=MAX_SESSION_FILE_BYTES)
    document = Document(file, SessionFileError)
    version = document.count(content.get("SchemaVersion"), "SchemaVersion")
    if version != _SCHEMA_VERSION:
        document.fail(
            f"SchemaVersion={version} is not {_SCHEMA_VERSION}: another version of Stepwatch wrote "
            "this session; read it with that version, or give the folder of one of its runs"
        )
    runs = document.items(content.get("Runs", []), "Runs")
    return SessionFile(
        command=document.texts(content.get("Command"), "Command"),
        working_directory=document.text(content.get("WorkingDirectory", ""), "WorkingDirectory"),
        started_at=document.text(content.get("StartedAt"), "StartedAt"),
        runs=tuple(
            SessionRun.from_json(document.members(run, f"Runs[{i}]"), document, f"Runs[{i}].")
            for i, run in enumerate(runs)
        ),
        runs_not_watched=document.count(content.get("RunsNotWatched", 0), "RunsNotWatched"),
        stopped_by=document.optional_text(content.get("StoppedBy"), "StoppedBy"),
        ended_at=document.optional_text(content.get("EndedAt"), "EndedAt"),
        exit_status=document.optional_count(content.get("ExitStatus"), "ExitStatus"),
    )
