"""The original's writer and reader of one step's files, for its own tests."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from hook_layer.format.index import IndexFile, TensorLocation
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key, index_key
from hook_layer.format.records import EncodedRecord, StepEncoder, TensorRecord, read_records
from hook_layer.storage.base import open_store
from rule_runtime.trial.errors import SMDebugValueError

__all__ = ["FileReader", "FileWriter"]


class FileWriter:
    """Writes the data of one worker at one step; the files exist after `close`.

    Args:
        trial_dir: Path or URI of the trial's root.
        worker: Name of the worker.
        step: Global step.
        wtype: `events`; the hook writes TensorBoard files itself.
        mode: Accepted for compatibility; `write_tensor` sets the mode.
    """

    def __init__(
        self,
        trial_dir: str,
        worker: str,
        step: int = 0,
        wtype: str = "events",
        mode: ModeKeys = ModeKeys.GLOBAL,
        **_: object,
    ) -> None:
        if wtype != "events":
            raise ValueError(f"Writer type not supported {wtype}: let a hook export_tensorboard")
        self.trial_dir = trial_dir
        self.worker = worker
        self.step = step
        self.mode = mode
        self._records: dict[str, EncodedRecord] = {}
        self._place: tuple[ModeKeys, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_tensor(  # noqa: PLR0917 - the original's arguments
        self,
        tdata: Any,
        tname: str,
        write_index: bool = True,
        mode: ModeKeys | None = ModeKeys.GLOBAL,
        mode_step: int | None = None,
        timestamp: float | None = None,
    ) -> None:
        """Add a tensor.

        Args:
            tdata: Its value.
            tname: Its name.
            write_index: Accepted for compatibility; the index has every tensor.
            mode: Mode of the step, None for GLOBAL; the index has the first tensor's mode.
            mode_step: Step within the mode; by default, the global step.
            timestamp: Time of the capture, seconds since 1970.

        Raises:
            SMDebugValueError: `mode` is not a mode.
        """
        del write_index
        mode = ModeKeys.GLOBAL if mode is None else mode
        if mode not in list(ModeKeys):
            valid = ", ".join(f"ModeKeys.{key.name}" for key in ModeKeys)
            raise SMDebugValueError(f"mode={mode!r}: mode can be one of {valid}")
        place = (mode, self.step if mode_step is None else mode_step)
        self._place = self._place or place
        wall_time = time.time() if timestamp is None else timestamp
        encoder = StepEncoder(step=self.step, mode=mode, mode_step=place[1], wall_time=wall_time)
        value = np.asarray([tdata]) if np.isscalar(tdata) else np.asarray(tdata)
        self._records[tname] = encoder.encode(tname, value)

    def flush(self) -> None:
        """Do nothing: a step is written as a whole."""

    def name(self) -> str:
        """Return the path of the event file."""
        return f"{self.trial_dir}/{event_key(self.step, self.worker)}"

    def close(self) -> None:
        """Write the files, the event file first; without a tensor, write none."""
        if self._place is None:
            return
        locations, start = [], 0
        for name, record in self._records.items():
            locations.append(TensorLocation(name, start, record.length))
            start += record.length
        store = open_store(self.trial_dir)
        key = event_key(self.step, self.worker)
        store.put(key, [part for record in self._records.values() for part in record.buffers])
        index = IndexFile(*self._place, key, tuple(locations))
        store.put(index_key(self.step, self.worker), index.encode())
        self._records, self._place = {}, None


class FileReader:
    """Reads an event file."""

    def __init__(self, fname: str, wtype: str = "tfevent") -> None:
        del wtype
        self._path = Path(fname)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_tensors(
        self, check: bool | str = "minimal"
    ) -> Iterator[tuple[str, int, npt.NDArray[Any], ModeKeys, int]]:
        """Yield name, global step, value, mode and step within the mode of each tensor.

        Raises:
            RecordError: If the file is truncated or damaged.
        """
        del check
        for found in self._records():
            yield found.name, found.step, found.value, found.mode, found.mode_step

    def read_events(
        self, check: bool | str = "minimal", regex_list: str | Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return timestamp, step, name and value of each tensor.

        Args:
            check: Accepted for compatibility; existing checksums are always verified.
            regex_list: Regular expressions, of which the name must match one; None for all.

        Raises:
            RecordError: If the file is truncated or damaged.
            re.error: If one is not a regular expression.
        """
        del check
        patterns = [regex_list] if isinstance(regex_list, str) else regex_list
        return [
            {
                "timestamp": found.wall_time,
                "step": found.step,
                "name": found.name,
                "value": found.value,
            }
            for found in self._records()
            if patterns is None or any(re.search(pattern, found.name) for pattern in patterns)
        ]

    def _records(self) -> Iterator[TensorRecord]:
        for _, found in read_records(self._path.read_bytes(), file=self._path.name):
            yield found
