"""Remembers a fingerprint and a streak of many tensors, in a few bytes each.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_ROWS", "RowMemory", "fingerprints", "row_keys"]

MAX_ROWS: Final = 2048
"""Rows that are remembered; of more, those with the smallest keys, which are hashes."""

_RECORD: Final = np.dtype([("key", "<u4"), ("fingerprint", "<u4"), ("streak", "<u2")])
_LONGEST: Final = 60_000


def row_keys(names: Sequence[str], workers: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return a hash of tensor and worker of each row [R]."""
    pairs = zip(names, workers, strict=True)
    keys = [zlib.crc32(f"{worker}\0{name}".encode()) for name, worker in pairs]
    return np.array(keys, dtype=np.uint32)


def fingerprints(columns: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.uint32]:
    """Return a hash of each row [R], which differs if any column [R] differs."""
    table = np.ascontiguousarray(np.stack(columns, axis=1), dtype="<f8")
    return np.array([zlib.crc32(row.tobytes()) for row in table], dtype=np.uint32)


class RowMemory:
    """Fingerprints and streaks of at most 2,048 rows, as one string.

    Rows with a fingerprint and a streak of 0 need no place.

    Args:
        text: What `to_json` returned; empty to begin.
    """

    def __init__(self, text: str) -> None:
        self._records = np.frombuffer(base64.b64decode(text), _RECORD)

    def to_json(self) -> str:
        """Return the memory as a string of at most 28 KB."""
        return base64.b64encode(self._records.tobytes()).decode()

    def known(self, keys: npt.NDArray[np.uint32]) -> Mapping[int, tuple[int, int]]:
        """Return (fingerprint, streak) of those rows that are remembered, by key."""
        known = zip(*(self._records[name].tolist() for name in _RECORD.names or ()), strict=True)
        by_key = {key: (fingerprint, streak) for key, fingerprint, streak in known}
        return {key: by_key[key] for key in keys.tolist() if key in by_key}

    def update(
        self,
        keys: npt.NDArray[np.uint32],
        fingerprints: npt.NDArray[np.uint32],
        is_bad: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.int64]:
        """Remember the rows [R] of a step; return how often in a row each was bad [R]."""
        known = self.known(keys)
        earlier = np.array([known.get(key, (0, 0))[1] for key in keys.tolist()], dtype=np.int64)
        streaks = np.where(is_bad, np.minimum(earlier + 1, _LONGEST), 0)
        records = np.zeros(len(keys), _RECORD)
        records["key"], records["fingerprint"], records["streak"] = keys, fingerprints, streaks
        absent = self._records[~np.isin(self._records["key"], keys)]
        joined = np.concatenate([records, absent])
        joined = joined[(joined["fingerprint"] | joined["streak"]) != 0]
        self._records = joined[np.argsort(joined["key"], kind="stable")][:MAX_ROWS]
        return np.where(np.isin(keys, self._records["key"]), streaks, 0)
