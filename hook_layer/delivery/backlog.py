"""Steps that could not be stored yet, in the order of their numbers.

They wait in a spool folder. Of a step for which there is no room the index file stays in memory if
its event file was stored: then it may be there itself, and only its answer was lost.
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
        num_tensors: How many tensors are in it.
        num_bytes: Length of its files together.
        attempts: How often it was tried to store it.
        files: Its files as far as they are in memory; None: on disk.
    """

    number: int
    num_tensors: int
    num_bytes: int
    attempts: int = 0
    files: StepFiles | None = None

    @property
    def disk_bytes(self) -> int:
        """About how much of the disk it takes."""
        return 0 if self.files is not None else self.num_bytes + 2 * _BLOCK_BYTES


class Backlog:
    """The steps of one worker that wait; for several threads.

    Args:
        target: Where they belong.
        max_bytes: How much of the disk they may take.
        parent: Folder that the spool is made in; None: the system's one for temporary files.
    """

    def __init__(self, target: SpoolTarget, *, max_bytes: int, parent: str | None = None) -> None:
        self._target = target
        self._max_bytes = max_bytes
        self._parent = parent
        self._spool: SpoolFolder | None = None
        self._steps: dict[int, WaitingStep] = {}
        self._order: list[int] = []
        self._aside: list[WaitingStep] = []
        self._disk_bytes = 0
        self._num_in_memory = 0
        self._lock = threading.RLock()  # a signal may interrupt who has it

    def __len__(self) -> int:
        return len(self._order)

    @property
    def folder(self) -> str | None:
        """The spool folder, None while there is none."""
        spool = self._spool
        return None if spool is None else spool.path

    @property
    def num_on_disk(self) -> int:
        """How many steps are in the spool, with those that were set aside."""
        return len(self._order) - self._num_in_memory + len(self._aside)

    def has_room(self, num_bytes: int) -> bool:
        """Return whether a step of about this size fits in."""
        return self._disk_bytes + num_bytes + 2 * _BLOCK_BYTES <= self._max_bytes

    @property
    def aside(self) -> list[WaitingStep]:
        """The steps that were set aside."""
        return list(self._aside)

    def head(self) -> list[WaitingStep]:
        """Return the step whose turn it is, and the one behind it, as far as there are any."""
        with self._lock:
            return [self._steps[number] for number in self._order[:2]]

    def previous(self, number: int) -> int:
        """Return the number of the last step before `number` that waits, 0 if there is none."""
        with self._lock:
            at = bisect_left(self._order, number)
            return self._order[at - 1] if at else 0

    def add(self, step: WaitingStep, files: StepFiles, events: Buffers | None) -> None:
        """Put a step into the spool.

        Raises:
            OSError: There is no room for it, or no spool can be made.
        """
        with self._lock:
            if self._disk_bytes + step.disk_bytes > self._max_bytes:
                reason = f"the spool may take no more than {self._max_bytes} bytes"
                raise OSError(errno.ENOSPC, reason)
            try:
                self._made_spool().put_step(step.number, files, events)
            except Exception:
                self._remove_empty_spool()
                raise
            self._disk_bytes += step.disk_bytes
            self._insert(step)

    def add_index(self, step: WaitingStep, files: StepFiles) -> None:
        """Keep in memory what is left of a step for which there is no room."""
        with self._lock:
            step.files = files
            self._num_in_memory += 1
            self._insert(step)

    def read(self, step: WaitingStep) -> StepFiles:
        """Return a step's files.

        Raises:
            OSError, ValueError: They are not there any more, or damaged.
        """
        if step.files is not None:
            return step.files
        with self._lock:
            spool = self._spool
        if spool is None:
            raise FileNotFoundError(errno.ENOENT, "the spool does not exist")
        return spool.get_step(step.number)

    def remove(self, step: WaitingStep) -> None:
        """Forget a step that is stored, or lost."""
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
        """Leave a step in the spool, so that it holds the others up no more."""
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
            OSError: There is no room for it, or no spool can be made.
        """
        with self._lock:
            if not self._max_bytes:
                raise OSError(errno.ENOSPC, "nothing may be kept there")
            self._made_spool().put_file(key, data, is_last=is_last)

    def close(self) -> None:
        """Let other processes have the spool."""
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
        insort(self._order, step.number)

    def _take_out(self, step: WaitingStep) -> None:
        del self._steps[step.number]
        self._order.remove(step.number)
