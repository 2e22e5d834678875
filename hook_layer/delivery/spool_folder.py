"""Files that wait on local disk until the store that they are for can be reached.

A spool is a folder of its own, which nobody else may read:

* `target.json`: where its files belong;
* `steps/{number}.tfevents` and `steps/{number}.json`: a step's event file, and, behind a line with
  its key, its index file. The latter is written last: without it there is no such step;
* `files/{key}`: other files of the trial; `end/{key}`: what comes behind all others;
* `lock`: held by the process that fills or empties it, and free when that ends, however it ends.
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

from hook_layer.file_lock import FileLock
from hook_layer.format.errors import JobFileError
from hook_layer.format.index import parse_index
from hook_layer.format.json_document import Document, load_object
from hook_layer.storage.base import Buffers, Store, check_key
from hook_layer.storage.local import LocalStore
from hook_layer.storage.plain_files import check_owner, read_plain_file

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
    """A process that lives still fills or empties the spool."""


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
            JobFileError: It is something else.
        """
        content = load_object(data, file=file, error=JobFileError, max_bytes=_MAX_TARGET_BYTES)
        document = Document(file, JobFileError)
        return cls(*(document.text(content.get(k), k) for k in ("uri", "run_id", "worker")))


class StepFiles(NamedTuple):
    """A step's files.

    Attributes:
        events: Content of the event file, None when it is not at hand or there is none.
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
        """Return the files with another number of steps that will never come.

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
            StorageError: That failed.
            IndexFileError: The index file is damaged.
        """
        if self.events is not None:
            store.put(self.event_key, self.events)
        store.put(self.index_key, self.index_data)


class SpoolFolder:
    """One spool; made by `create`, or found by `open`.

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
        """Make a new spool, held by this process.

        Args:
            parent: Folder that it is made in; None: the system's folder for temporary files.
            target: Where its files belong.

        Raises:
            OSError: The folder cannot be made.
        """
        if parent is not None:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103
        name = re.sub(r"[^\w.-]", "_", f"{target.run_id}-{target.worker}")[:100]
        spool = cls(tempfile.mkdtemp(prefix=f"{SPOOL_PREFIX}{name}-", dir=parent), target)
        try:
            spool._take_lock()  # before anybody can take it for an old one
            spool._store.put(_TARGET_FILE, target.encode())
        except BaseException:
            spool.remove()
            raise
        return spool

    @classmethod
    def open(cls, path: str) -> SpoolFolder:
        """Return the spool in a folder, held by this process from now on.

        Raises:
            FileNotFoundError: There is no spool.
            PermissionError: It is somebody else's, who could have this process read anything.
            JobFileError: Its `target.json` is damaged.
            SpoolInUseError: Somebody holds it.
        """
        check_owner(path)
        data = read_plain_file(path, _TARGET_FILE, _MAX_TARGET_BYTES + 1)
        spool = cls(path, SpoolTarget.parse(data, file=f"{path}/{_TARGET_FILE}"))
        spool._take_lock()
        return spool

    # Steps ---------------------------------------------------------------------------------------

    def put_step(self, number: int, files: StepFiles, events: Buffers | None) -> None:
        """Keep a step, whole or not at all.

        Raises:
            OSError: It does not fit, or the folder cannot be written to.
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
        """Remove a step; its index file first, so that no half of it is ever taken for one."""
        for key in reversed(_keys(number)):
            with suppress(OSError):
                self._store.delete(key)

    # Other files ---------------------------------------------------------------------------------

    def put_file(self, key: str, data: bytes, *, is_last: bool = False) -> None:
        """Keep another file of the trial.

        Raises:
            OSError: The folder cannot be written to.
        """
        self._store.put((_END if is_last else _FILES) + key, data)

    def files(self, *, is_last: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yield the other files, or those that come behind all others: key and content."""
        prefix = _END if is_last else _FILES
        for key in list(self._store.list(prefix)):
            yield key.removeprefix(prefix), read_plain_file(self.path, key)

    def remove_file(self, key: str, *, is_last: bool = False) -> None:
        """Remove another file."""
        self._store.delete((_END if is_last else _FILES) + key)

    # The folder ----------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not any(next(iter(self._store.list(p)), None) for p in (_STEPS, _FILES, _END))

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_lock(self) -> None:
        path = os.path.join(self.path, _LOCK_FILE)  # noqa: PTH118
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            self._lock = FileLock.take(descriptor)
        except OSError as error:  # no file system of this kind has locks: better none than no spool
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
    """Return what to type to deliver a spool."""
    return f"python -m hook_layer.spool {shlex.quote(folder)}"


def _keys(number: int) -> tuple[str, str]:
    """Return the names of a step's event file and index file."""
    return f"{_STEPS}{number:016d}.tfevents", f"{_STEPS}{number:016d}.json"
