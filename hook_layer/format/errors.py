"""Errors for files that violate the format."""

from __future__ import annotations

__all__ = [
    "CollectionsFileError",
    "FormatError",
    "IndexFileError",
    "IndexTooLongError",
    "JobFileError",
    "PathError",
    "RecordError",
    "SessionFileError",
    "UnsupportedDtypeError",
]


class FormatError(ValueError):
    """A file, record or name that violates the format.

    `file` is the name of the file and `offset` the position in bytes, if known.
    """

    def __init__(self, message: str, *, file: str | None = None, offset: int | None = None) -> None:
        place = file or ""
        if offset is not None:
            place = f"{place or 'buffer'} at byte {offset}"
        super().__init__(f"{place}: {message}" if place else message)
        self.file = file
        self.offset = offset


class RecordError(FormatError):
    """An event file whose records are truncated, damaged or invalid."""


class IndexFileError(FormatError):
    """An invalid index file."""


class IndexTooLongError(IndexFileError):
    """An index file longer than readers accept."""


class CollectionsFileError(FormatError):
    """An invalid collections file."""


class JobFileError(FormatError):
    """An invalid `job.json` or `stop.json`."""


class SessionFileError(FormatError):
    """An invalid `session.json`."""


class PathError(FormatError):
    """A key that is not a name of this format."""


class UnsupportedDtypeError(FormatError, TypeError):
    """A value whose type the format has no tag for."""
