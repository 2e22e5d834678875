"""The end marker: that training ended, which run it was, and how much each worker had written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.json_document import Document, load_object

__all__ = ["EndMarker", "parse_end_marker"]

_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class EndMarker:
    """Content of the end marker; the original's is empty, and its reader looks at no content.

    Attributes:
        run_id: The run that ended, None in files of the original client.
        sequences: Number of the last index file of each worker that the writer of the marker knows
            of. A reader that has seen that many needs to look for no more.
    """

    run_id: str | None = None
    sequences: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the file's bytes; empty without a run."""
        if self.run_id is None:
            return b""
        content = {
            "SchemaVersion": _SCHEMA_VERSION,
            "RunId": self.run_id,
            "Sequences": dict(self.sequences),
        }
        return json.dumps(content).encode()


def parse_end_marker(data: bytes, *, file: str) -> EndMarker:
    """Parse an end marker, of this client or of the original one.

    Raises:
        JobFileError: The file has a content that is no end marker.
    """
    if not data.strip():
        return EndMarker()
    content = load_object(data, file=file, error=JobFileError)
    document = Document(file, JobFileError)
    sequences = document.members(content.get("Sequences", {}), "Sequences")
    return EndMarker(
        document.text(content.get("RunId"), "RunId"),
        {name: document.count(value, f"Sequences.{name}") for name, value in sequences.items()},
    )
