"""What the Pythons that a watched command starts tell of themselves: small files in one folder.

The command may be anything that starts Python in the end: a shell's script, a launcher. Who watches
it learns from these files which processes train, and, where nothing was captured, why not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from hook_layer.file_lock import HAS_LOCKS, FileLock

__all__ = ["FRAMEWORKS_FILE", "LACKING_FILE", "NOTES_VARIABLE", "RunNotes"]

logger = logging.getLogger("stepwatch")

NOTES_VARIABLE: Final = "STEPWATCH_RUN_NOTES"
"""Variable that names the folder."""
FRAMEWORKS_FILE: Final = "frameworks"
"""Names of the packages that train, for a Python in which this package is not installed."""
LACKING_FILE: Final = "lacking"
"""Such a Python, once it imported one of these."""

_IMPORTED: Final = "imported-"
_TRAINING: Final = "training-"
_ENDED: Final = "ended-"
_REASON: Final = "reason-"
_FIRST: Final = "first"
_TOLD: Final = "told"


class RunNotes:
    """The notes on one command.

    Args:
        folder: The folder.
    """

    _locks: ClassVar[list[FileLock]] = []
    """Held until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def make(cls, folder: Path, frameworks: Iterable[str]) -> RunNotes:
        """Return the notes in a new folder.

        Args:
            folder: The folder.
            frameworks: Names of the packages that train.
        """
        folder.mkdir()
        (folder / FRAMEWORKS_FILE).write_text("\n".join(frameworks))
        return cls(folder)

    @classmethod
    def of_environment(cls) -> RunNotes | None:
        """Return the notes that this process is to write to; None without any."""
        named = os.environ.get(NOTES_VARIABLE, "")
        return cls(Path(named)) if named and Path(named).is_dir() else None

    # What watched processes say ------------------------------------------------------------------

    def imported(self, framework: str) -> None:
        """Note that a package that trains was imported.

        Args:
            framework: Its name.
        """
        self._is_first(_IMPORTED + framework)

    def may_train(self, *, is_one_of_several: bool = False) -> bool:
        """Note that this process trains, unless that is a training of its own behind another one.

        Workers of one training go on together. Any other training would write over the first one,
        also one at the same time, as in the processes of a search.

        Args:
            is_one_of_several: Whether this process trains in a group of processes.
        """
        name = f"{_TRAINING}{os.getpid()}"
        lock = self._locked(name)
        if lock is None:
            return True
        is_first = self._is_first_training()
        others = [path for path in self._trainings() if path.name != name]
        if is_first or (is_one_of_several and (not others or any(map(self._goes_on, others)))):
            self._locks.append(lock)
            return True
        (self._folder / name).unlink(missing_ok=True)
        lock.release()
        if self._is_first(_TOLD):
            logger.warning(
                "only the first training of a command is watched; this is a later one: give it a "
                "`stepwatch run` of its own"
            )
        return False

    def training_ended(self) -> None:
        """Note that the training of this process has ended; the process may go on."""
        with suppress(OSError):
            (self._folder / f"{_ENDED}{os.getpid()}").touch()

    def note_reason(self, reason: str) -> None:
        """Note why nothing is captured of this process.

        Args:
            reason: Why.
        """
        hidden = self._folder / f".{_REASON}{os.getpid()}"
        with suppress(OSError):
            hidden.write_text(reason, encoding="utf-8")
            hidden.rename(self._folder / hidden.name[1:])

    def _goes_on(self, training: Path) -> bool:
        ended = self._folder / f"{_ENDED}{training.name[len(_TRAINING) :]}"
        return not ended.exists() and _is_held(training)

    def _is_first_training(self) -> bool:
        """Tell whether no other process asked this before."""
        path = self._folder / _FIRST
        try:
            with path.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            with suppress(OSError):
                return path.read_text() == str(os.getpid())
        return True

    def _locked(self, name: str) -> FileLock | None:
        """Return the lock on a new file, which nobody sees before it is held; None without one."""
        if not HAS_LOCKS:
            return None
        hidden = self._folder / f".{name}"
        try:
            lock = FileLock.take(os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            hidden.rename(self._folder / name)
        except OSError as error:
            logger.debug("%s cannot be locked: %s", hidden, error)
            return None
        return lock

    def _is_first(self, name: str) -> bool:
        try:
            (self._folder / name).touch(exist_ok=False)
        except OSError:
            return False
        return True

    # What is known of them -----------------------------------------------------------------------

    @property
    def frameworks(self) -> list[str]:
        """Names of the packages that train and were imported."""
        return sorted(path.name[len(_IMPORTED) :] for path in self._folder.glob(f"{_IMPORTED}*"))

    @property
    def imported_at(self) -> float | None:
        """When the first of them was imported, seconds since 1970; None for none."""
        with suppress(OSError):
            times = (path.stat().st_mtime for path in self._folder.glob(f"{_IMPORTED}*"))
            return min(times, default=None)
        return None

    @property
    def reason(self) -> str | None:
        """Why nothing is captured, as a process said; None if none did."""
        for path in sorted(self._folder.glob(f"{_REASON}*")):
            with suppress(OSError, UnicodeDecodeError):
                return path.read_text(encoding="utf-8")[:4096]
        return None

    @property
    def lacking(self) -> str | None:
        """A Python that imported one, and in which this package is not installed."""
        try:
            return (self._folder / LACKING_FILE).read_text()[:4096]
        except (OSError, UnicodeDecodeError):
            return None

    @property
    def trainings(self) -> list[int] | None:
        """The processes that trained and have not ended; None where none ever trained."""
        paths = self._trainings()
        if not paths:
            return None
        return [int(path.name[len(_TRAINING) :]) for path in paths if _is_held(path)]

    def _trainings(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_TRAINING}*"))


def _is_held(path: Path) -> bool:
    """Tell whether a process has the lock of a file, so that it has not ended."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        lock = FileLock.take(descriptor)
    except OSError:
        lock = None
    os.close(descriptor) if lock is None else lock.release()
    return lock is None
