"""Files that wait on local disk until their store is available.

Each spool has its own folder, which other users cannot read:

* `target.json`: where its files belong;
* `steps/{number}.tfevents` and `steps/{number}.json`: a step's event file, and its index file after
  a line with its key. The index file is written last and commits the step;
* `files/{key}`: other files of the trial; `end/{key}`: files that are stored after all others;
* `lock`: held by the process that fills or empties the spool, and free after that process ends.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Final, NamedTuple

from hook_layer.format.errors import JobFileError
from hook_layer.format.index import parse_index
from hook_layer.format.json_document import Document, load_object
from hook_layer.process.file_lock import FileLock
from hook_layer.storage.base import Buffers, Store, check_key
from hook_layer.storage.local import LocalStore
from hook_layer.storage.untrusted_folder import check_owner, read_plain_file

__all__ = [
    "SPOOL_PREFIX",
    "SpoolFolder",
    "SpoolInUseError",
    "SpoolTarget",
    "StepFiles",
    "delivery_command",
]

logger = logging.getLogger("stepwatch")

SPOOL_PREFIX: Final = "stepwatch-spool-"

_TARGET_FILE: Final = "target.json"
_LOCK_FILE: Final = "lock"
_STEPS, _FILES, _END = "steps/", "files/", "end/"
_MAX_TARGET_BYTES: Final = 1 << 16


class SpoolInUseError(RuntimeError):
    """A running process still fills or empties the spool."""


@dataclass(frozen=True)
class SpoolTarget:
    """Where the files of a spool belong.

    Attributes:
        uri: The trial's root.
        run_id: The run.
        worker: The worker.
    """

    uri: str
    run_id: str
    worker: str

    def encode(self) -> bytes:
        """Return the content of `target.json`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, data: bytes, *, file: str) -> SpoolTarget:
        """Parse `target.json`.

        Raises:
            JobFileError: The content is invalid.
        """
        content = load_object(data, file=file, error=JobFileError, max_bytes=_MAX_TARGET_BYTES)
        document = Document(file, JobFileError)
        return cls(*(document.text(content.get(k), k) for k in ("uri", "run_id", "worker")))


class StepFiles(NamedTuple):
    """A step's files.

    Attributes:
        events: Content of the event file; None if it is unavailable or does not exist.
        index_key: Key of the index file.
        index_data: Its content.
    """

    events: bytes | None
    index_key: str
    index_data: bytes

    @property
    def event_key(self) -> str:
        """Key of the event file, empty when the step has none.

        Raises:
            IndexFileError: The index file is damaged.
        """
        return parse_index(self.index_data, file=self.index_key).event_file_name or ""

    def with_skipped(self, skipped: int) -> StepFiles:
        """Return the files with another number of lost steps.

        Raises:
            IndexFileError: The index file is damaged.
        """
        index = parse_index(self.index_data, file=self.index_key)
        if (index.skipped or 0) == skipped:
            return self
        return self._replace(index_data=replace(index, skipped=skipped or None).encode())

    def store_in(self, store: Store) -> None:
        """Store the event file, then the index file.

        Raises:
            StorageError: Storing failed.
            IndexFileError: The index file is damaged.
        """
        if self.events is not None:
            store.put(self.event_key, self.events)
        store.put(self.index_key, self.index_data)


class SpoolFolder:
    """One spool, from `create` or `open`.

    Attributes:
        path: The folder.
        target: Where its files belong.
    """

    def __init__(self, path: str, target: SpoolTarget) -> None:
        self.path = path
        self.target = target
        self._store = LocalStore(path)
        self._lock: FileLock | None = None

    @classmethod
    def create(cls, parent: str | None, target: SpoolTarget) -> SpoolFolder:
        """Create a new spool that this process holds.

        Args:
            parent: Folder in which to create it; None: the system's folder for temporary files.
            target: Where its files belong.

        Raises:
            OSError: The folder cannot be created.
        """
        if parent is not None:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103
        name = re.sub(r"[^\w.-]", "_", f"{target.run_id}-{target.worker}")[:100]
        spool = cls(tempfile.mkdtemp(prefix=f"{SPOOL_PREFIX}{name}-", dir=parent), target)
        try:
            spool._take_lock()  # before another process can take it for an abandoned one
            spool._store.put(_TARGET_FILE, target.encode())
        except BaseException:
            spool.remove()
            raise
        return spool

    @classmethod
    def open(cls, path: str) -> SpoolFolder:
        """Return the spool in a folder; this process holds it from now on.

        Raises:
            FileNotFoundError: There is no spool.
            PermissionError: Another user owns it, who could make this process read any file.
            JobFileError: Its `target.json` is damaged.
            SpoolInUseError: Another process holds it.
        """
        check_owner(path)
        data = read_plain_file(path, _TARGET_FILE, _MAX_TARGET_BYTES + 1)
        spool = cls(path, SpoolTarget.parse(data, file=f"{path}/{_TARGET_FILE}"))
        spool._take_lock()
        return spool

    # Steps ---------------------------------------------------------------------------------------

    def put_step(self, number: int, files: StepFiles, events: Buffers | None) -> None:
        """Store a step in the spool, completely or not at all.

        Raises:
            OSError: There is no room, or the folder is not writable.
        """
        event_file, index_file = _keys(number)
        try:
            if events is not None:
                self._store.put(event_file, events)
            self._store.put(index_file, b"\n".join((files.index_key.encode(), files.index_data)))
        except BaseException:
            self.remove_step(number)
            raise

    def steps(self) -> list[int]:
        """Return the numbers of the steps, in order."""
        names = (key.removeprefix(_STEPS) for key in self._store.list(_STEPS))
        return [int(name[:-5]) for name in names if re.fullmatch(r"[0-9]{16}\.json", name)]

    def get_step(self, number: int) -> StepFiles:
        """Return a step's files.

        Raises:
            OSError: They cannot be read.
            ValueError: They are damaged.
        """
        event_file, index_file = _keys(number)
        key, _, index = read_plain_file(self.path, index_file).partition(b"\n")
        events = None
        with suppress(FileNotFoundError):
            events = read_plain_file(self.path, event_file)
        return StepFiles(events, check_key(key.decode()), index)

    def remove_step(self, number: int) -> None:
        """Remove a step; its index file first, so that a partial step is never read."""
        for key in reversed(_keys(number)):
            with suppress(OSError):
                self._store.delete(key)

    # Other files ---------------------------------------------------------------------------------

    def put_file(self, key: str, data: bytes, *, is_last: bool = False) -> None:
        """Store another file of the trial in the spool.

        Raises:
            OSError: The folder is not writable.
        """
        self._store.put((_END if is_last else _FILES) + key, data)

    def files(self, *, is_last: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of the other files, or of those that are stored last."""
        prefix = _END if is_last else _FILES
        for key in list(self._store.list(prefix)):
            yield key.removeprefix(prefix), read_plain_file(self.path, key)

    def remove_file(self, key: str, *, is_last: bool = False) -> None:
        """Remove another file."""
        self._store.delete((_END if is_last else _FILES) + key)

    # The folder ----------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Return whether the spool is empty."""
        return not any(next(iter(self._store.list(p)), None) for p in (_STEPS, _FILES, _END))

    def remove(self) -> None:
        """Remove the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Release the folder to other processes."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_lock(self) -> None:
        path = os.path.join(self.path, _LOCK_FILE)  # noqa: PTH118
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            self._lock = FileLock.take(descriptor)
        except OSError as error:  # this file system has no locks; continue without
            logger.debug("%s cannot be locked: %s", path, error)
            os.close(descriptor)
            return
        if self._lock is None:
            os.close(descriptor)
            raise SpoolInUseError(
                f"{self.path} is in use by its training run or another delivery; wait until "
                "that ends"
            )


def delivery_command(folder: str) -> str:
    """Return the shell command that delivers a spool."""
    return f"python -m hook_layer.spool {shlex.quote(folder)}"


def _keys(number: int) -> tuple[str, str]:
    """Return the names of a step's event file and index file."""
    return f"{_STEPS}{number:016d}.tfevents", f"{_STEPS}{number:016d}.json"
