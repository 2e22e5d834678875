"""Stores a fingerprint and a streak of many tensors in a few bytes each.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_ROWS", "RowMemory", "fingerprints"]

MAX_ROWS: Final = 2048
"""Maximum number of stored rows; of more, those with the smallest key hashes."""

_RECORD: Final = np.dtype([("key", "<u4"), ("fingerprint", "<u4"), ("streak", "<u2")])
_LONGEST: Final = 60_000


def fingerprints(columns: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.uint32]:
    """Return a hash of each row [R], which changes if any column [R] changes."""
    table = np.ascontiguousarray(np.stack(columns, axis=1), dtype="<f8")
    return np.array([zlib.crc32(row.tobytes()) for row in table], dtype=np.uint32)


class RowMemory:
    """Fingerprints and streaks of at most 2,048 rows, as one string of at most 28 KB.

    Rows with fingerprint 0 and streak 0 are not stored. The string is `rows` in a rule's memory.

    Attributes:
        fingerprints: Stored fingerprints of the rows [R]; 0 for others.
    """

    def __init__(self, memory: MutableMapping[str, Any], pairs: Sequence[tuple[str, str]]) -> None:
        self._memory = memory
        # The first record stands for all keys that are not remembered.
        stored = bytes(_RECORD.itemsize) + base64.b64decode(memory.get("rows", ""))
        self._records = np.frombuffer(stored, _RECORD)
        self._keys = _keys(tuple(pairs))
        at = np.searchsorted(self._records["key"], self._keys, side="right") - 1
        found = self._records[np.where(self._records["key"][at] == self._keys, at, 0)]
        self.fingerprints = found["fingerprint"].astype(np.int64)
        self._streaks = found["streak"].astype(np.int64)

    def update(
        self, is_bad: npt.NDArray[np.bool_], fingerprints: npt.ArrayLike = 0
    ) -> npt.NDArray[np.int64]:
        """Store the rows [R] of a step; return the length of each one's bad streak [R]."""
        keys = self._keys
        streaks = np.where(is_bad, np.minimum(self._streaks + 1, _LONGEST), 0)
        records = np.zeros(len(keys), _RECORD)
        records["key"], records["fingerprint"], records["streak"] = keys, fingerprints, streaks
        joined = np.concatenate([records, self._records])
        _, first = np.unique(joined["key"], return_index=True)
        joined = joined[first]  # a record of this step, if there is one
        joined = joined[(joined["fingerprint"] | joined["streak"]) != 0]
        stored = joined[:MAX_ROWS]
        self._memory["rows"] = base64.b64encode(stored.tobytes()).decode()
        if len(joined) > MAX_ROWS:
            streaks[keys > stored["key"][-1]] = 0
        return streaks


@lru_cache(maxsize=32)
def _keys(pairs: tuple[tuple[str, str], ...]) -> npt.NDArray[np.uint32]:
    """Return a hash of the tensor and worker of each row [R]; pairs hardly ever change in a run."""
    keys = [zlib.crc32(f"{worker}\0{name}".encode()) for name, worker in pairs]
    return np.array(keys, dtype=np.uint32)
