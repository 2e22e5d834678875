"""Steps that wait to be stored, in order of their numbers.

They wait in a spool folder. If it has no room for a step whose event file was stored, the index
file stays in memory: it may be stored already, because only the response was lost.
"""

from __future__ import annotations

import errno
import logging
import threading
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Final

from hook_layer.delivery.spool_folder import SpoolFolder, SpoolTarget, StepFiles
from hook_layer.storage.base import Buffers

__all__ = ["Backlog", "WaitingStep"]

logger = logging.getLogger("stepwatch")

_BLOCK_BYTES: Final = 4096


@dataclass
class WaitingStep:
    """A step that waits.

    Attributes:
        number: Its sequence number.
        num_tensors: Number of its tensors.
        num_bytes: Total size of its files.
        attempts: Number of attempts to store it.
        files: Its files, if they are in memory; None: on disk.
    """

    number: int
    num_tensors: int
    num_bytes: int
    attempts: int = 0
    files: StepFiles | None = None

    @property
    def disk_bytes(self) -> int:
        """Approximate disk space that it uses."""
        return 0 if self.files is not None else self.num_bytes + 2 * _BLOCK_BYTES


class Backlog:
    """The waiting steps of one worker; thread-safe.

    Args:
        target: Where they belong.
        max_bytes: Maximum disk space.
        parent: Folder in which to create the spool; None: the system's folder for temporary files.

    Attributes:
        order: Numbers of the waiting steps.
    """

    def __init__(self, target: SpoolTarget, *, max_bytes: int, parent: str | None = None) -> None:
        self._target = target
        self._max_bytes = max_bytes
        self._parent = parent
        self._spool: SpoolFolder | None = None
        self._steps: dict[int, WaitingStep] = {}
        self.order: list[int] = []
        self._aside: list[WaitingStep] = []
        self._disk_bytes = 0
        self._num_in_memory = 0
        self._lock = threading.RLock()  # a signal may interrupt who has it

    @property
    def folder(self) -> str | None:
        """The spool folder; None if there is none."""
        spool = self._spool
        return None if spool is None else spool.path

    @property
    def num_on_disk(self) -> int:
        """Number of steps in the spool, including those set aside."""
        return len(self.order) - self._num_in_memory + len(self._aside)

    def has_room(self, num_bytes: int) -> bool:
        """Return whether there is room for a step of about this size."""
        return self._disk_bytes + num_bytes + 2 * _BLOCK_BYTES <= self._max_bytes

    @property
    def aside(self) -> list[WaitingStep]:
        """The steps set aside."""
        return list(self._aside)

    def head(self) -> list[WaitingStep]:
        """Return the next step to deliver, and the one after it, if they exist."""
        with self._lock:
            return [self._steps[number] for number in self.order[:2]]

    def previous(self, number: int) -> int:
        """Return the number of the last waiting step before `number`; 0 if there is none."""
        with self._lock:
            at = bisect_left(self.order, number)
            return self.order[at - 1] if at else 0

    def add(self, step: WaitingStep, files: StepFiles, events: Buffers | None) -> None:
        """Put a step into the spool.

        Raises:
            OSError: There is no room for it, or no spool can be created.
        """
        with self._lock:
            if self._disk_bytes + step.disk_bytes > self._max_bytes:
                reason = f"the spool is limited to {self._max_bytes} bytes"
                raise OSError(errno.ENOSPC, reason)
            try:
                self._made_spool().put_step(step.number, files, events)
            except Exception:
                self._remove_empty_spool()
                raise
            self._disk_bytes += step.disk_bytes
            self._insert(step)

    def add_index(self, step: WaitingStep, files: StepFiles) -> None:
        """Keep in memory the index file of a step for which the spool has no room."""
        with self._lock:
            step.files = files
            self._num_in_memory += 1
            self._insert(step)

    def read(self, step: WaitingStep) -> StepFiles:
        """Return a step's files.

        Raises:
            OSError, ValueError: They are missing or damaged.
        """
        if step.files is not None:
            return step.files
        with self._lock:
            spool = self._spool
        if spool is None:
            raise FileNotFoundError(errno.ENOENT, "the spool does not exist")
        return spool.get_step(step.number)

    def remove(self, step: WaitingStep) -> None:
        """Remove a step that is stored or lost."""
        with self._lock:
            if step in self._aside:
                self._aside.remove(step)
            else:
                self._take_out(step)
            if step.files is not None:
                self._num_in_memory -= 1
                return
            self._disk_bytes -= step.disk_bytes
            if self._spool is not None:
                self._spool.remove_step(step.number)
                self._remove_empty_spool()

    def set_aside(self, step: WaitingStep) -> None:
        """Set a step aside in the spool, so that it no longer delays the others."""
        logger.error(
            "%s refused step %d but takes others; the step stays in %s",
            self._target.uri,
            step.number,
            self.folder,
        )
        with self._lock:
            self._take_out(step)
            self._aside.append(step)

    def put_file(self, key: str, data: bytes, *, is_last: bool = False) -> None:
        """Put another file into the spool; see `SpoolFolder.put_file`.

        Raises:
            OSError: There is no room for it, or no spool can be created.
        """
        with self._lock:
            if not self._max_bytes:
                raise OSError(errno.ENOSPC, "nothing may be kept there")
            self._made_spool().put_file(key, data, is_last=is_last)

    def close(self) -> None:
        """Release the spool to other processes."""
        with self._lock:
            if self._spool is not None:
                self._spool.release()
                if self._spool.is_empty():
                    self._spool.remove()
                    self._spool = None

    def _made_spool(self) -> SpoolFolder:
        if self._spool is None:
            self._spool = SpoolFolder.create(self._parent, self._target)
        return self._spool

    def _remove_empty_spool(self) -> None:
        if self._spool is not None and not self.num_on_disk:
            self._spool.remove()
            self._spool = None

    def _insert(self, step: WaitingStep) -> None:
        self._steps[step.number] = step
        insort(self.order, step.number)

    def _take_out(self, step: WaitingStep) -> None:
        del self._steps[step.number]
        self.order.remove(step.number)
