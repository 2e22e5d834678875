"""Index files: which tensors a worker saved in a step, and where. They commit the step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from hook_layer.format.errors import FormatError, IndexFileError, IndexTooLongError
from hook_layer.format.index_pieces import IndexPieces, index_pieces, members_of
from hook_layer.format.json_document import Document, load_object
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import is_event_key
from hook_layer.format.statistics_block import (
    STATISTICS_COLUMNS,
    Statistics,
    parse_statistics,
    statistics_of_pieces,
)

__all__ = [
    "MAX_INDEX_BYTES",
    "STATISTICS_COLUMNS",
    "IndexFile",
    "Statistics",
    "TensorLocation",
    "TensorShape",
    "parse_index",
]

MAX_INDEX_BYTES: Final = 8 << 20
"""Maximum size of an index file. 5,000 tensors need about 1.3 MB."""

_MAX_WORKERS: Final = 1 << 20
_MAX_TIME: Final = 253_402_300_800.0
"""The first second after the year 9999, which Python's datetime cannot represent."""
_MAX_REMEMBERED: Final = 8
"""Number of cached JSON pieces: they are often equal in a worker's next file."""
_MAX_REMEMBERED_BYTES: Final = 512 << 10
_LOCATION_MEMBERS: Final = itemgetter("tensorname", "start_idx", "length")


class TensorLocation(NamedTuple):
    """Position of a tensor's record in the event file: first byte and length in bytes."""

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
        event_file_name: Key of the event file; None if no value is stored.
        locations: The tensors that have a value, in the order of the event file.
        shapes: Tensors with a stored shape only.
        statistics: The statistics block; None in files of the original client.
        run: RunId of the run that wrote the file; None in files of the original client.
        workers: Number of workers that write index files in this run; None likewise.
        sequence: Number of this file within its worker and run, from 1; None likewise.
        skipped: How many numbers directly before `sequence` belong to lost steps; None for none.
        stage: Index of the worker's pipeline stage; None without pipelines.
        time: When the step began, seconds since 1970; None in files of the original client.
        first_rows: Tensors whose value is cut, and their number of stored rows (0 for none). Shapes
            and statistics describe the whole tensor.
        merged: Tensors that represent several calls of a module, and how many. Statistics cover all
            of them; shape and value are those of the first.
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
    skipped: int | None = None
    time: float | None = None
    first_rows: Mapping[str, int] = field(default_factory=dict)
    stage: int | None = None
    merged: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the file's bytes.

        Raises:
            IndexTooLongError: The file would be longer than readers accept.
            IndexFileError: The file would have no tensor, or values without an event file.
        """
        if not self.locations and not self.shapes:
            raise IndexFileError("an index file must name at least one tensor")
        if (self.event_file_name is None) != (not self.locations):
            raise IndexFileError("the event file must be named exactly if a value is stored")
        meta: dict[str, Any] = {"mode": self.mode.name, "mode_step": self.mode_step}
        if self.event_file_name is not None:
            meta["event_file_name"] = self.event_file_name
        members = [f'"meta": {json.dumps(meta)}']
        if self.locations:
            members.append(f'"tensor_payload": {_locations_json(self.locations)}')
        if self.shapes:
            members.append(f'"shape_payload": {_shapes_json(self.shapes)}')
        ours = {
            "run": self.run,
            "workers": self.workers,
            "sequence": self.sequence,
            "skipped": self.skipped,
            "time": _time(self.time),
            "first_rows": dict(self.first_rows) or None,
            "merged": dict(self.merged) or None,
            "stage": self.stage,
        }
        ours = {name: value for name, value in ours.items() if value is not None}
        if ours:
            members.append(json.dumps(ours)[1:-1])
        if self.statistics is not None:
            members.append(f'"statistics": {self.statistics.to_json()}')
        data = f"{{{', '.join(members)}}}".encode()
        if len(data) > MAX_INDEX_BYTES:
            raise IndexTooLongError(
                f"an index file of {len(data)} bytes is longer than the {MAX_INDEX_BYTES} that "
                "readers take"
            )
        return data


@lru_cache(maxsize=_MAX_REMEMBERED)
def _locations_json(rows: tuple[TensorLocation, ...]) -> str:
    return json.dumps(
        [{"tensorname": row.name, "start_idx": row.start, "length": row.length} for row in rows]
    )


@lru_cache(maxsize=_MAX_REMEMBERED)
def _shapes_json(rows: tuple[TensorShape, ...]) -> str:
    return json.dumps(
        [
            {"tensorname": row.name, "originalname": row.original_name, "shape": list(row.shape)}
            for row in rows
        ]
    )


def parse_index(data: bytes, *, file: str) -> IndexFile:
    """Parse an index file of Stepwatch or the original client.

    Raises:
        IndexFileError: It is not an index file, or names a file outside the trial.
    """
    document = Document(file, IndexFileError)
    pieces = index_pieces(data) if len(data) <= MAX_INDEX_BYTES else None
    parsed = None if pieces is None else _parsed(pieces)
    if pieces is not None and parsed is not None:
        content = pieces.content
    else:
        content = load_object(data, file=file, error=IndexFileError, max_bytes=MAX_INDEX_BYTES)
        parsed = _parsed_whole(content, document)
    locations, shapes, statistics = parsed
    meta = document.members(content.get("meta"), "meta")
    mode = document.text(meta.get("mode"), "meta.mode").strip()
    if mode not in ModeKeys.__members__:
        document.fail(f"meta.mode: {mode[:40]!r} is none of {', '.join(ModeKeys.__members__)}")
    if not locations and not shapes:
        document.fail("neither tensor_payload nor shape_payload names a tensor")
    event_file = document.optional_text(meta.get("event_file_name"), "meta.event_file_name")
    if event_file is not None and not is_event_key(event_file):
        document.fail(
            f"meta.event_file_name: {event_file[:120]!r} is not an event file of this trial"
        )
    if locations and event_file is None:
        document.fail("meta.event_file_name: missing, and tensor_payload is not empty")
    workers = document.optional_count(content.get("workers"), "workers")
    if workers is not None and not 1 <= workers <= _MAX_WORKERS:
        document.fail(f"workers: {workers} is not between 1 and {_MAX_WORKERS}")
    sequence = document.optional_count(content.get("sequence"), "sequence")
    if sequence == 0:
        document.fail("sequence: the first file has the number 1")
    skipped = document.optional_count(content.get("skipped"), "skipped")
    if skipped is not None and not 0 < skipped < (sequence or 0):
        document.fail(f"skipped: there are no {skipped} numbers before the sequence {sequence}")
    return IndexFile(
        mode=ModeKeys[mode],
        mode_step=document.count(meta.get("mode_step"), "meta.mode_step"),
        event_file_name=event_file,
        locations=locations,
        shapes=shapes,
        statistics=statistics,
        run=document.optional_text(content.get("run"), "run"),
        workers=workers,
        sequence=sequence,
        skipped=skipped,
        time=_time(content.get("time")),
        first_rows=_counts(content, "first_rows", document),
        merged=_counts(content, "merged", document),
        stage=document.optional_count(content.get("stage"), "stage"),
    )


def _counts(content: Mapping[str, Any], member: str, document: Document) -> dict[str, int]:
    value = content.get(member)
    counts = {} if value is None else document.members(value, member)
    return {name: document.count(counts[name], f"{member}.{name[:120]}") for name in counts}


def _time(value: object) -> float | None:
    """Return a valid time; None otherwise, because a step is useful without its time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # NaN fails the comparison, and so does an integer too large for a float.
    return float(value) if 0 <= value < _MAX_TIME else None


_Parsed: TypeAlias = "tuple[tuple[TensorLocation, ...], tuple[TensorShape, ...], Statistics | None]"


def _parsed_whole(content: dict[str, Any], document: Document) -> _Parsed:
    block = content.get("statistics")
    return (
        _locations(content.get("tensor_payload"), document),
        _shapes(content.get("shape_payload"), document),
        None if block is None else parse_statistics(block, document),
    )


def _parsed(pieces: IndexPieces) -> _Parsed | None:
    """Return the parsed pieces of a file; None if they are invalid."""
    is_short = len(pieces.payload) <= _MAX_REMEMBERED_BYTES
    payload = _payload if is_short else _payload.__wrapped__
    try:
        locations, shapes = payload(pieces.payload)
        return locations, shapes, statistics_of_pieces(pieces)
    except FormatError:
        return None  # parsing the whole file reports the error and its position


@lru_cache(maxsize=_MAX_REMEMBERED)
def _payload(piece: bytes) -> tuple[tuple[TensorLocation, ...], tuple[TensorShape, ...]]:
    document = Document("", IndexFileError)
    members = members_of(piece)
    if not members.keys() <= {"tensor_payload", "shape_payload"}:
        document.fail("other members among the payloads")
    locations = _locations(members.get("tensor_payload"), document)
    return locations, _shapes(members.get("shape_payload"), document)


def _locations(rows: object, document: Document) -> tuple[TensorLocation, ...]:
    path = "tensor_payload"
    items = document.items([] if rows is None else rows, path)
    try:
        found = tuple(map(_LOCATION_MEMBERS, items))
    except (KeyError, TypeError):
        found = ()  # reported below
    names, starts, lengths = zip(*found, strict=True) if found else ((), (), ())
    is_sound = len(found) == len(items) and set(map(type, names)) <= {str}
    if not (is_sound and document.are_counts(starts) and document.are_counts(lengths)):
        for row in items:  # find the invalid row only now
            members = document.members(row, path)
            document.text(members.get("tensorname"), f"{path}.tensorname")
            document.count(members.get("start_idx"), f"{path}.start_idx")
            document.count(members.get("length"), f"{path}.length")
    return tuple(map(TensorLocation._make, found))


def _shapes(rows: object, document: Document) -> tuple[TensorShape, ...]:
    path = "shape_payload"
    shapes = []
    for row in document.items([] if rows is None else rows, path):
        name = document.text(document.members(row, path).get("tensorname"), f"{path}.tensorname")
        original = document.optional_text(row.get("originalname"), f"{path}.originalname")
        shape = document.shape(row.get("shape"), f"{path}.shape")
        shapes.append(TensorShape(name, name if original is None else original, shape))
    return tuple(shapes)
