"""The end marker of a run: its id, and how many index files each worker has written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.json_document import Document, load_object

__all__ = ["MAX_END_MARKER_BYTES", "EndMarker", "parse_end_marker"]

MAX_END_MARKER_BYTES: Final = 1 << 20
"""Maximum size of an end marker, enough for 20,000 workers."""

_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class EndMarker:
    """Content of the end marker. The original's is empty, and its reader ignores the content.

    Attributes:
        run_id: The run that ended; None in files of the original client.
        sequences: Number of each worker's last step known to the writer of the marker: of its last
            index file, or of a later step that could not be stored. A reader needs no further index
            files after this number; lower ones that are absent are missing.
        exit_status: Exit status of the training script, as a shell reports it (128 plus the number
            of the signal that ended it); None if unknown.
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
    """Parse an end marker of Stepwatch or the original client.

    Raises:
        JobFileError: The content is not an end marker.
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
