"""Index files: what one worker saved at one step, and where. The commit record of a step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hook_layer.format.errors import IndexFileError
from hook_layer.format.json_document import Document, load_object
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import is_event_key
from hook_layer.format.statistics_block import STATISTICS_COLUMNS, Statistics, parse_statistics

__all__ = [
    "STATISTICS_COLUMNS",
    "IndexFile",
    "Statistics",
    "TensorLocation",
    "TensorShape",
    "parse_index",
]

_MAX_WORKERS: Final = 1 << 20


class TensorLocation(NamedTuple):
    """Where a tensor's record lies in the event file: first byte and length in bytes."""

    name: str
    start: int
    length: int


class TensorShape(NamedTuple):
    """Shape of a tensor whose value is not stored."""

    name: str
    original_name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class IndexFile:
    """Content of an index file.

    Attributes:
        mode: Mode of the step.
        mode_step: Step within the mode.
        event_file_name: Key of the event file, None when no value is stored.
        locations: The tensors that have a value, in the order of the event file.
        shapes: The tensors of which only the shape is stored here.
        statistics: The statistics block, None in files of the original client.
        run: RunId of the run that wrote the file, None in files of the original client.
        workers: How many workers write index files in this run; None likewise.
        sequence: Number of this file among those of its worker and run, from 1; None likewise.
    """

    mode: ModeKeys
    mode_step: int
    event_file_name: str | None
    locations: tuple[TensorLocation, ...] = ()
    shapes: tuple[TensorShape, ...] = ()
    statistics: Statistics | None = None
    run: str | None = None
    workers: int | None = None
    sequence: int | None = None

    def encode(self) -> bytes:
        """Return the file's bytes.

        Raises:
            IndexFileError: The file would hold no tensor, or values without an event file.
        """
        if not self.locations and not self.shapes:
            raise IndexFileError("an index file must name at least one tensor")
        if (self.event_file_name is None) != (not self.locations):
            raise IndexFileError("an event file is named when, and only when, a value is stored")
        meta: dict[str, Any] = {"mode": self.mode.name, "mode_step": self.mode_step}
        if self.event_file_name is not None:
            meta["event_file_name"] = self.event_file_name
        content: dict[str, Any] = {
            "meta": meta,
            "tensor_payload": [
                {"tensorname": row.name, "start_idx": row.start, "length": row.length}
                for row in self.locations
            ],
            "shape_payload": [
                {
                    "tensorname": row.name,
                    "originalname": row.original_name,
                    "shape": list(row.shape),
                }
                for row in self.shapes
            ],
        }
        for name in ("tensor_payload", "shape_payload"):
            if not content[name]:
                del content[name]
        ours = {"run": self.run, "workers": self.workers, "sequence": self.sequence}
        content |= {name: value for name, value in ours.items() if value is not None}
        if self.statistics is not None:
            content["statistics"] = self.statistics.to_json()
        return json.dumps(content).encode()


def parse_index(data: bytes, *, file: str) -> IndexFile:
    """Parse an index file, of this client or of the original one.

    Args:
        data: The file's bytes, not trusted.
        file: Name of the file, for errors.

    Raises:
        IndexFileError: The file is no index file, or names a file outside the trial.
    """
    content = load_object(data, file=file, error=IndexFileError)
    document = Document(file, IndexFileError)
    meta = document.members(content.get("meta"), "meta")
    mode = document.text(meta.get("mode"), "meta.mode").strip()
    if mode not in ModeKeys.__members__:
        document.fail(f"meta.mode: {mode[:40]!r} is none of {', '.join(ModeKeys.__members__)}")
    locations = _locations(content.get("tensor_payload"), document)
    shapes = _shapes(content.get("shape_payload"), document)
    if not locations and not shapes:
        document.fail("neither tensor_payload nor shape_payload names a tensor")
    event_file = document.optional_text(meta.get("event_file_name"), "meta.event_file_name")
    if event_file is not None and not is_event_key(event_file):
        document.fail(f"meta.event_file_name: {event_file[:120]!r} is no event file of this trial")
    if locations and event_file is None:
        document.fail("meta.event_file_name: missing, and tensor_payload is not empty")
    workers = document.optional_count(content.get("workers"), "workers")
    if workers is not None and not 1 <= workers <= _MAX_WORKERS:
        document.fail(f"workers: {workers} is not between 1 and {_MAX_WORKERS}")
    sequence = document.optional_count(content.get("sequence"), "sequence")
    if sequence == 0:
        document.fail("sequence: the first file has the number 1")
    block = content.get("statistics")
    return IndexFile(
        mode=ModeKeys[mode],
        mode_step=document.count(meta.get("mode_step"), "meta.mode_step"),
        event_file_name=event_file,
        locations=locations,
        shapes=shapes,
        statistics=None if block is None else parse_statistics(block, document),
        run=document.optional_text(content.get("run"), "run"),
        workers=workers,
        sequence=sequence,
    )


def _locations(rows: object, document: Document) -> tuple[TensorLocation, ...]:
    path = "tensor_payload"
    locations = []
    for row in document.items([] if rows is None else rows, path):
        members = document.members(row, path)
        name: Any = members.get("tensorname")
        start: Any = members.get("start_idx")
        length: Any = members.get("length")
        # One cheap test passes the row as it should be; only a wrong one is looked at closely.
        if type(name) is not str or not document.are_counts((start, length)):
            document.text(name, f"{path}.tensorname")
            document.count(start, f"{path}.start_idx")
            document.count(length, f"{path}.length")
        locations.append(TensorLocation(name, start, length))
    return tuple(locations)


def _shapes(rows: object, document: Document) -> tuple[TensorShape, ...]:
    path = "shape_payload"
    shapes = []
    for row in document.items([] if rows is None else rows, path):
        name = document.text(document.members(row, path).get("tensorname"), f"{path}.tensorname")
        original = document.optional_text(row.get("originalname"), f"{path}.originalname")
        shape = document.shape(row.get("shape"), f"{path}.shape")
        shapes.append(TensorShape(name, name if original is None else original, shape))
    return tuple(shapes)
