"""Reads tensors from event files with ranged reads; joins neighbouring ranges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

import numpy.typing as npt

from hook_layer.format.errors import RecordError
from hook_layer.format.index import IndexFile, Statistics, TensorLocation
from hook_layer.format.record_layout import RecordLayout
from hook_layer.format.records import decode_record
from hook_layer.storage.base import Store

__all__ = ["MAX_RECORD_BYTES", "TensorReader", "iter_tensors", "read_tensors"]

MAX_RECORD_BYTES: Final = 2 << 30
"""Longest record that is read; protocol buffers allow no longer message."""

_MAX_GAP_BYTES: Final = 1 << 16
"""Bytes that are read and dropped to save a request."""

_MAX_READ_BYTES: Final = 1 << 24
"""Longest joined range; a larger tensor gets its own request."""


def read_tensors(
    store: Store, index: IndexFile, names: Iterable[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return the values of tensors of one index file, by name.

    Names without a value are omitted. If a name was written twice, the last value counts.

    Raises:
        ObjectNotFoundError: If the event file does not exist.
        RecordError: If a record is damaged, or does not match the index.
    """
    return dict(iter_tensors(store, index, names))


def iter_tensors(
    store: Store, index: IndexFile, names: Iterable[str], *, max_record_bytes: int | None = None
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield name and value of tensors of one index file, in the order of the event file.

    Small neighbours are read together. It needs memory for the largest tensor, or 16 MiB.

    Args:
        store: The trial's root.
        index: The index file with the positions of the values.
        names: Names as stored.
        max_record_bytes: Longest record to read; None for no limit.

    Raises:
        ObjectNotFoundError: If the event file does not exist.
        RecordError: If a record is damaged, too long, or does not match the index.
    """
    wanted = frozenset(names)
    locations = {row[0]: row for row in index.locations if row[0] in wanted}
    file = index.event_file_name
    if not locations or file is None:
        return
    checksums = _checksums(index, locations)
    for group in _coalesced(locations.values()):
        first = group[0].start
        length = max(row.start + row.length for row in group) - first
        if max_record_bytes is not None and length > max(max_record_bytes, _MAX_READ_BYTES):
            raise RecordError(
                f"the record of {group[0].name!r} is said to have {length} bytes, more than the "
                f"{max_record_bytes} that are read",
                file=file,
                offset=first,
            )
        data = memoryview(store.get(file, first, length))
        for row in group:
            part = slice(row.start - first, row.start - first + row.length)
            yield row.name, _value(data[part], row, file, checksums.get(row.name))
        del data  # frees it before the next read


class TensorReader:
    """Reads one tensor at many steps with similar files.

    It is thread-safe.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        # Each is replaced as a whole, so no thread sees a partial update.
        self._location: tuple[tuple[TensorLocation, ...], TensorLocation | None] = ((), None)
        self._row: tuple[tuple[str, ...], int] = ((), -1)
        self._layout: RecordLayout | None = None

    def read(self, index: IndexFile) -> npt.NDArray[Any] | None:
        """Return the tensor's value at one step, None if it was not saved.

        Raises:
            ObjectNotFoundError: If the event file does not exist.
            RecordError: If the record is damaged, or does not match the index.
        """
        locations, row = self._location
        if index.locations is not locations:  # files that were read together share equal objects
            found = [row for row in index.locations if row.name == self._name]
            row = found[-1] if found else None
            self._location = (index.locations, row)
        file = index.event_file_name
        if row is None or file is None:
            return None
        data = self._store.get(file, row.start, row.length)
        crc32c = self._checksum(index)
        layout = self._layout
        value = None if layout is None else layout.value(data, crc32c)
        if value is None:
            value = _value(memoryview(data), row, file, crc32c)
            self._layout = RecordLayout(data, value)
        return value

    def _checksum(self, index: IndexFile) -> int | None:
        block = index.statistics
        at = -1 if block is None else self.row_in(block)
        return None if block is None or at < 0 else block.crc32c[at]

    def row_in(self, block: Statistics) -> int:
        """Return the tensor's row in the statistics of an index file, -1 without one."""
        tensors, at = self._row
        if block.tensors is not tensors:
            at = block.tensors.index(self._name) if self._name in block.tensors else -1
            self._row = (block.tensors, at)
        return at


def _value(
    data: memoryview, row: TensorLocation, file: str, crc32c: int | None
) -> npt.NDArray[Any]:
    try:
        record = decode_record(data, file=file, offset=row.start, crc32c=crc32c)
    except RecordError as error:
        if len(data) >= row.length:
            raise
        raise RecordError(
            f"the file is cut off, or not written to its end: of the {row.length} bytes of the "
            f"record of {row.name!r} it has {len(data)}",
            file=file,
            offset=row.start,
        ) from error
    if record.name != row.name:
        raise RecordError(
            f"the record holds {record.name!r}, where the index says {row.name!r}",
            file=file,
            offset=row.start,
        )
    return record.value


def _checksums(index: IndexFile, names: Collection[str]) -> dict[str, int | None]:
    block = index.statistics
    if block is None:
        return {}
    if len(names) == 1:  # one tensor of many steps: avoids scanning all of them
        (name,) = names
        return {name: block.crc32c[block.tensors.index(name)]} if name in block.tensors else {}
    rows = zip(block.tensors, block.crc32c, strict=True)
    return {name: crc32c for name, crc32c in rows if name in names}


def _coalesced(locations: Iterable[TensorLocation]) -> Iterator[list[TensorLocation]]:
    """Yield the locations in groups that one request reads."""
    group: list[TensorLocation] = []
    end = 0
    for row in sorted(locations, key=itemgetter(1)):
        is_near = group and row.start - end <= _MAX_GAP_BYTES
        if is_near and row.start + row.length - group[0].start <= _MAX_READ_BYTES:
            group.append(row)
        else:
            if group:
                yield group
            group = [row]
        end = max(end, row.start + row.length) if len(group) > 1 else row.start + row.length
    if group:
        yield group
