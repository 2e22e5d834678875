"""Counts the zero elements of selected tensors from their values."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import FormatError
from hook_layer.storage.base import StorageError, Store
from rule_runtime.trial.event_reader import read_tensors
from rule_runtime.trial.step_index import StepFile

__all__ = ["ZeroShares"]

_MAX_READS: Final = 256
_MAX_BYTES: Final = 16 << 20
"""Longest value that is read."""

_logger: Final = logging.getLogger(__name__)


class ZeroShares:
    """The shares of zeros of tensors with saved values, by step.

    Each step needs a ranged request, so it is for the few plotted tensors. It reads at most the
    first 256 values.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted: set[tuple[str, str]] = set()
        self._found: dict[tuple[str, str], dict[int, float]] = {}
        self._num_read = 0

    def want(self, worker: str, tensor: str) -> None:
        """Read the values of a tensor from now on."""
        self._wanted.add((worker, tensor))

    def of(self, worker: str, tensor: str) -> Mapping[int, float]:
        """Return the share of zeros by step, in percent."""
        return self._found.get((worker, tensor), {})

    def add(self, file: StepFile, tensor: str) -> None:
        """Read a tensor from a file, if it is wanted and its value was saved."""
        key = (file.worker, tensor)
        known = self._found.setdefault(key, {}) if key in self._wanted else {}
        if key not in self._wanted or file.step in known or file.index is None:
            return
        lengths = [row.length for row in file.index.locations if row.name == tensor]
        if not lengths or max(lengths) > _MAX_BYTES or self._num_read >= _MAX_READS:
            return
        self._num_read += 1
        try:
            value = read_tensors(self._store, file.index, [tensor]).get(tensor)
        except (FormatError, StorageError) as error:  # the rest of the report is still useful
            _logger.warning(
                "the value of %s at step %d cannot be read: %s", *key[1:], file.step, error
            )
            return
        share = None if value is None else _share(value)
        if share is not None:
            known[file.step] = share


def _share(value: npt.NDArray[Any]) -> float | None:
    if value.dtype.kind not in "biufc" or not value.size:
        return None
    return 100.0 * float(value.size - np.count_nonzero(value)) / value.size
