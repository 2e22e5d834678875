"""Detects files of a checkpoint directory that were written since the last check.

Each check runs at every step, so it must be cheap. Creating, renaming and removing a file changes
its folder's time; overwriting in place changes only the file's. So each check reads a limited
number of folders and files: the newest ones, which are most likely to change, and some of the
others in turn. A folder is listed only if it changed.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from hook_layer.resuming.checkpoint_state import STATE_FILE

__all__ = ["CheckpointFiles", "FileMark", "open_inodes"]

logger = logging.getLogger("stepwatch")

_UPLOAD_MARK: Final = "sagemaker-uploaded"  # in names of files of SageMaker's agent
_MAX_FOLDERS: Final = 1_000
_MAX_FILES: Final = 20_000
_MAX_PATH_BYTES: Final = 200
_TICK_S: Final = 0.02
"""Longer than the clock resolution of file systems, within which two changes look like one."""


class FileMark(NamedTuple):
    """Identifies a version of a file."""

    inode: int
    size: int
    mtime_ns: int


class CheckpointFiles:
    """Finds new or rewritten files in a folder and its subfolders.

    Removed files, the state file and files of upload agents are ignored. Links to folders are not
    followed.

    Args:
        root: The folder; it may not exist yet. Its current files count as known.
        clock: Monotonic time, seconds.
    """

    def __init__(self, root: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root.rstrip("/") or "/"
        self._clock = clock
        self._known: dict[str, FileMark] = {}
        self._news: dict[str, FileMark] = {}
        self._listed: dict[str, int] = {self._root: -1}  # time of a folder when it was listed
        self._members: dict[str, set[str]] = {}
        self._unsettled: dict[str, float] = {}  # when a folder's change was first seen
        self._files_to_ask = _Turns()
        self._folders_to_ask = _Turns()
        self._is_overfull = False
        self.accept(self.changed())

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the known files, by their path in the folder."""
        return {os.path.relpath(p, self._root): mark.size for p, mark in self._known.items()}

    @property
    def newest(self) -> tuple[str, int, int] | None:
        """Path, size and time of the newest known file; None without any."""
        if not self._known:
            return None
        path = max(self._known, key=lambda path: self._known[path].mtime_ns)
        return os.path.relpath(path, self._root), *self._known[path][1:]

    def changed(self) -> dict[str, FileMark]:
        """Return changed files, by path, until `accept` is called for them."""
        for path in list(self._news):
            self._ask_file(path)
        folders = [self._root, *self._unsettled, *self._folders_to_ask.next()]
        while folders:
            folders += self._ask_folder(folders.pop())
        for path in self._files_to_ask.next():
            self._ask_file(path)
        return dict(self._news) if self._news else _NO_NEWS

    def accept(self, files: Mapping[str, FileMark]) -> None:
        """Accept these versions as known."""
        self._known.update(files)
        for path, mark in files.items():
            if self._news.get(path) == mark:
                del self._news[path]
        newest = sorted(self._known, key=lambda path: self._known[path].mtime_ns, reverse=True)
        self._files_to_ask.set(newest)
        folders = sorted(self._listed.keys() - {self._root}, key=self._listed.__getitem__)
        self._folders_to_ask.set(folders[::-1])

    def described(self, files: Mapping[str, FileMark], limit: int) -> dict[str, int]:
        """Return the sizes of the largest files, by their path in the folder.

        Files whose path is too long or not UTF-8 are skipped.
        """
        sizes = {os.path.relpath(path, self._root): mark.size for path, mark in files.items()}
        plain = sorted(filter(_is_plain, sizes), key=sizes.__getitem__, reverse=True)
        return {path: sizes[path] for path in plain[:limit]}

    def _ask_file(self, path: str) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116 - pathlib takes longer than the call
        except OSError:
            self._news.pop(path, None)
            return
        mark = FileMark(status.st_ino, status.st_size, status.st_mtime_ns)
        if mark == self._known.get(path) or not stat.S_ISREG(status.st_mode):
            self._news.pop(path, None)
        else:
            self._news[path] = mark

    def _ask_folder(self, folder: str) -> list[str]:
        """List a folder if it changed, or so recently that further changes may be invisible.

        Returns:
            The new folders in it.
        """
        try:
            mtime_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116
        except OSError:
            self._forget(folder)
            return []
        if mtime_ns != self._listed.get(folder):
            self._unsettled[folder] = self._clock()
        elif folder not in self._unsettled:
            return []
        elif self._clock() - self._unsettled[folder] > _TICK_S:
            del self._unsettled[folder]  # listed one last time
        self._listed[folder] = mtime_ns
        return self._list(folder)

    def _list(self, folder: str) -> list[str]:
        members: set[str] = set()
        folders: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, _MAX_FILES):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.name.startswith(STATE_FILE) and _UPLOAD_MARK not in entry.name:
                        members.add(entry.path)
                        mark = self._known.get(entry.path)
                        if mark is None or mark.inode != entry.inode():
                            self._ask_file(entry.path)
        except OSError:
            return []
        for path in self._members.get(folder, set()) - members:
            self._drop(path)
        self._members[folder] = members
        new = [path for path in folders if path not in self._listed]
        room = self._room(len(new))
        self._listed.update(dict.fromkeys(new[:room], -1))
        return new[:room]

    def _room(self, wanted: int) -> int:
        """Return the number of new folders that can still be watched."""
        is_full = len(self._known) + len(self._news) >= _MAX_FILES
        room = 0 if is_full else min(max(_MAX_FOLDERS - len(self._listed), 0), wanted)
        if room < wanted and not self._is_overfull:
            self._is_overfull = True
            logger.warning(
                "%s has more than %d folders or %d files, so not all are watched, and a "
                "resumed run may continue at a wrong step",
                self._root,
                _MAX_FOLDERS,
                _MAX_FILES,
            )
        return room

    def _forget(self, folder: str) -> None:
        for path in self._members.pop(folder, ()):
            self._drop(path)
        self._unsettled.pop(folder, None)
        self._listed.pop(folder, None)

    def _drop(self, path: str) -> None:
        self._known.pop(path, None)
        self._news.pop(path, None)


class _Turns:
    """Limits how many items are checked at once: the first ones always, the others in turn."""

    _ALWAYS: Final = 32
    _IN_TURN: Final = 16

    def __init__(self) -> None:
        self._first: list[str] = []
        self._others: list[str] = []
        self._at = 0

    def set(self, ordered: list[str]) -> None:
        """Set the items, the most important ones first; the turn continues at its position."""
        self._first, self._others = ordered[: self._ALWAYS], ordered[self._ALWAYS :]

    def next(self) -> list[str]:
        """Return the items to check now."""
        if not self._others:
            return self._first
        if self._at >= len(self._others):
            self._at = 0
        self._at += self._IN_TURN
        return self._first + self._others[self._at - self._IN_TURN : self._at]


def _is_plain(path: str) -> bool:
    return len(os.fsencode(path)) <= _MAX_PATH_BYTES and not any(
        "\ud800" <= char <= "\udfff" for char in path
    )


_NO_NEWS: Final[dict[str, FileMark]] = {}


def open_inodes() -> set[int]:
    """Return the inodes of this process's open files; empty if unknown."""
    found: set[int] = set()
    with suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
            with suppress(OSError):  # closed in the meantime
                found.add(os.fstat(int(descriptor)).st_ino)
    return found
