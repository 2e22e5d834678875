"""The `statistics` block of an index file: one row of float64 numbers per tensor."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import IndexFileError
from hook_layer.format.index_pieces import IndexPieces, members_of
from hook_layer.format.json_document import Document, load_json

__all__ = ["STATISTICS_COLUMNS", "Shard", "Statistics", "parse_statistics", "statistics_of_pieces"]

STATISTICS_COLUMNS: Final = (
    "size",
    "nan",
    "inf",
    "min",
    "max",
    "mean",
    "std",
    "abs_mean",
    "l1",
    "l2",
)
"""`size`, `nan` and `inf` count elements; the others cover finite elements (population std)."""
_VERSION: Final = 1
_FLOAT64: Final = np.dtype("<f8")
_MAX_CRC32C: Final = 0xFFFFFFFF
_MAX_REMEMBERED: Final = 8
_MAX_REMEMBERED_BYTES: Final = 512 << 10

_Description: TypeAlias = (
    "tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[tuple[int, ...], ...], "
    "tuple[Shard | None, ...]]"
)
"""Columns, tensors, dtypes, shapes and shards."""


class Shard(NamedTuple):
    """The part of a sharded tensor that one rank has.

    Attributes:
        shape: Shape of the whole tensor.
        part: Id of the part; ranks with equal ids have the same elements. None: each rank has an
            addend of the tensor, so that statistics of the whole are unknown.
    """

    shape: tuple[int, ...]
    part: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of the tensors of one step and worker.

    Attributes:
        columns: Names of the columns.
        tensors: Names of the tensors, one per row.
        dtypes: The tensors' true types, e.g. `bfloat16` for values saved as float32.
        shapes: The tensors' shapes.
        values: The numbers [rows, columns], float64; NaN if missing. A row whose `size` is NaN has
            no statistics, only a checksum.
        crc32c: CRC-32C of each tensor's record in the event file; None without a record.
        shards: Part of the tensor that each row covers, None for the whole tensor; empty if all
            rows cover whole tensors.
    """

    columns: tuple[str, ...]
    tensors: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    values: npt.NDArray[np.float64]
    crc32c: tuple[int | None, ...]
    shards: tuple[Shard | None, ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.tensors)
        if not rows == len(self.dtypes) == len(self.shapes) == len(self.crc32c):
            raise ValueError("tensors, dtypes, shapes and crc32c must be equally long")
        if self.shards and len(self.shards) != rows:
            raise ValueError(f"there are {len(self.shards)} shards, and {rows} tensors")
        if self.values.shape != (rows, len(self.columns)):
            raise ValueError(
                f"values have the shape {self.values.shape}, not {(rows, len(self.columns))}"
            )

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return one column [rows]; all NaN if the block does not have it."""
        if name not in self.columns:
            return np.full(len(self.tensors), np.nan)
        return self.values[:, self.columns.index(name)]

    def to_json(self) -> str:
        """Return the block as text for the index file."""
        matrix = np.ascontiguousarray(self.values, dtype=_FLOAT64)
        described = self.columns, self.tensors, self.dtypes, self.shapes, self.shards
        description = _description_json(*described)
        checksums = str(list(self.crc32c)).replace("None", "null")
        values = binascii.b2a_base64(matrix.tobytes(), newline=False).decode("ascii")
        return (
            f'{{"version": {_VERSION}, {description}, "crc32c": {checksums}, "values": "{values}"}}'
        )


@lru_cache(maxsize=_MAX_REMEMBERED)
def _description_json(
    columns: tuple[str, ...],
    tensors: tuple[str, ...],
    dtypes: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    shards: tuple[Shard | None, ...],
) -> str:
    """Return the part of the block that is often the same in a worker's next file; cached."""
    lists: dict[str, Any] = {
        "columns": columns, "tensors": tensors, "dtypes": dtypes, "shapes": shapes
    }  # fmt: skip
    if shards:
        lists["shards"] = [None if shard is None else shard._asdict() for shard in shards]
    return json.dumps(lists)[1:-1]


def parse_statistics(block: object, document: Document) -> Statistics | None:
    """Return the block of an index file; None for an unknown version.

    Raises:
        FormatError: The block is inconsistent.
    """
    members = document.members(block, "statistics")
    if members.get("version") != _VERSION:
        return None
    columns, tensors, dtypes, shapes, shards = _described(members, document)
    checksums = _checksums(members.get("crc32c"), len(tensors), document)
    text = document.text(members.get("values"), "statistics.values")
    values = _matrix(text, len(tensors), len(columns), document)
    return Statistics(columns, tensors, dtypes, shapes, values, checksums, shards)


def statistics_of_pieces(pieces: IndexPieces) -> Statistics | None:
    """Return the block of an index file; None if it has none. Equal parts are cached.

    Raises:
        FormatError: The pieces are not statistics; parse the whole file to get the reason.
    """
    if pieces.description is None:
        return None
    document = Document("", IndexFileError)
    is_short = len(pieces.description) <= _MAX_REMEMBERED_BYTES
    description = _description if is_short else _description.__wrapped__
    columns, tensors, dtypes, shapes, shards = description(pieces.description)
    listed = b"[%b]" % pieces.checksums
    items = load_json(listed, file="", error=IndexFileError, max_bytes=len(listed))
    checksums = _checksums(items, len(tensors), document)
    values = _matrix(pieces.values, len(tensors), len(columns), document)
    return Statistics(columns, tensors, dtypes, shapes, values, checksums, shards)


@lru_cache(maxsize=_MAX_REMEMBERED)
def _description(piece: bytes) -> _Description:
    document = Document("", IndexFileError)
    members = members_of(piece)
    if members.keys() - {"shards"} != {"columns", "tensors", "dtypes", "shapes"}:
        document.fail("other members in the description")
    return _described(members, document)


def _described(members: dict[str, Any], document: Document) -> _Description:
    columns = document.texts(members.get("columns"), "statistics.columns")
    tensors = document.texts(members.get("tensors"), "statistics.tensors")
    dtypes = document.texts(members.get("dtypes"), "statistics.dtypes")
    shapes = tuple(map(tuple, document.shapes(members.get("shapes"), "statistics.shapes")))
    if not len(tensors) == len(dtypes) == len(shapes):
        document.fail("statistics: tensors, dtypes and shapes are not equally long")
    return columns, tensors, dtypes, shapes, _shards(members.get("shards"), len(tensors), document)


def _shards(value: object, rows: int, document: Document) -> tuple[Shard | None, ...]:
    path = "statistics.shards"
    items = document.items([] if value is None else value, path)
    if items and len(items) != rows:
        document.fail("statistics: tensors and shards are not equally long")
    return tuple([None if item is None else _shard(item, path, document) for item in items])


def _shard(item: object, path: str, document: Document) -> Shard:
    members = document.members(item, path)
    part = members.get("part")
    return Shard(
        tuple(document.shape(members.get("shape"), f"{path}.shape")),
        None if part is None else tuple(document.shape(part, f"{path}.part")),
    )


def _checksums(value: object, rows: int, document: Document) -> tuple[int | None, ...]:
    checksums = document.items(value, "statistics.crc32c")
    present = checksums
    if None in checksums:
        present = [checksum for checksum in checksums if checksum is not None]
    is_sound = set(map(type, present)) <= {int}
    if not is_sound or (present and not (min(present) >= 0 and max(present) <= _MAX_CRC32C)):
        document.fail("statistics.crc32c: not all are null or a number of 32 bits")
    if len(checksums) != rows:
        document.fail("statistics: tensors and crc32c are not equally long")
    return tuple(checksums)


def _matrix(
    text: str | bytes, rows: int, columns: int, document: Document
) -> npt.NDArray[np.float64]:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        document.fail("statistics.values: no base64")
    if len(data) != rows * columns * 8:
        document.fail(
            f"statistics.values: {len(data)} bytes are not {rows} rows of {columns} numbers"
        )
    return np.frombuffer(data, dtype=_FLOAT64).reshape(rows, columns)
