"""The one family of errors for files that are not what the format says."""

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
    """A file, a record or a name that the format does not allow.

    Where they are known, `file` is the name of the file and `offset` the byte in it.
    """

    def __init__(self, message: str, *, file: str | None = None, offset: int | None = None) -> None:
        place = file or ""
        if offset is not None:
            place = f"{place or 'buffer'} at byte {offset}"
        super().__init__(f"{place}: {message}" if place else message)
        self.file = file
        self.offset = offset


class RecordError(FormatError):
    """An event file whose records are truncated, damaged or not of the format."""


class IndexFileError(FormatError):
    """An index file that cannot be understood."""


class IndexTooLongError(IndexFileError):
    """An index file that is longer than readers take."""


class CollectionsFileError(FormatError):
    """A collections file that cannot be understood."""


class JobFileError(FormatError):
    """A `job.json` or `stop.json` that cannot be understood."""


class SessionFileError(FormatError):
    """A `session.json` that cannot be understood."""


class PathError(FormatError):
    """A key that is no name of this format."""


class UnsupportedDtypeError(FormatError, TypeError):
    """A value whose type the format has no tag for."""
