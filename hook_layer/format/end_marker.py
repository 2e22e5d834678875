"""The end marker: that training ended, which run it was, and how much each worker had written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.json_document import Document, load_object

__all__ = ["MAX_END_MARKER_BYTES", "EndMarker", "parse_end_marker"]

MAX_END_MARKER_BYTES: Final = 1 << 20
"""Longest end marker; room for 20,000 workers."""

_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class EndMarker:
    """Content of the end marker; the original's is empty, and its reader looks at no content.

    Attributes:
        run_id: The run that ended, None in files of the original client.
        sequences: Number of the last step of each worker that the writer of the marker knows of:
            of its last index file, or of a later step that could not be stored. A reader that has
            seen that many index files needs to look for no more; what it has not seen is missing.
        exit_status: Exit status of the training script, as a shell reports it (128 plus the
            number of the signal that ended it); None if unknown.
    """

    run_id: str | None = None
    sequences: Mapping[str, int] = field(default_factory=dict)
    exit_status: int | None = None

    def encode(self) -> bytes:
        """Return the file's bytes; empty without a run."""
        if self.run_id is None:
            return b""
        content: dict[str, Any] = {
            "SchemaVersion": _SCHEMA_VERSION,
            "RunId": self.run_id,
            "Sequences": dict(self.sequences),
        }
        if self.exit_status is not None:
            content["ExitStatus"] = self.exit_status
        return json.dumps(content).encode()


def parse_end_marker(data: bytes, *, file: str) -> EndMarker:
    """Parse an end marker, of this client or of the original one.

    Raises:
        JobFileError: The file has a content that is no end marker.
    """
    if not data.strip():
        return EndMarker()
    content = load_object(data, file=file, error=JobFileError, max_bytes=MAX_END_MARKER_BYTES)
    document = Document(file, JobFileError)
    sequences = document.members(content.get("Sequences", {}), "Sequences")
    return EndMarker(
        document.text(content.get("RunId"), "RunId"),
        {name: document.count(value, f"Sequences.{name}") for name, value in sequences.items()},
        document.optional_count(content.get("ExitStatus"), "ExitStatus"),
    )
