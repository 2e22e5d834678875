"""Deliver data that a training left in its spool because the store was unavailable.

python -m hook_layer.spool FOLDER [--to URI]

Steps are stored in order, one at a time, and removed from the spool afterwards. The end marker
comes last, and then the folder is removed. Data that fails stays: you can run the command again.

**The command overwrites no file of a run that was resumed since.** Such a run numbers its steps
from where it resumed, and its files list the numbers of lost steps. So the first step that the run
saved again or gave up, and all later ones, stay in the spool.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TextIO

from hook_layer.delivery.spool_folder import SpoolFolder, SpoolInUseError, SpoolTarget, StepFiles
from hook_layer.format.errors import FormatError
from hook_layer.format.index import IndexFile, parse_index
from hook_layer.format.paths import INDEX_PREFIX, JOB_FILE, parse_index_key
from hook_layer.resuming.resume import run_in
from hook_layer.storage.base import ObjectNotFoundError, Store, open_store

__all__ = ["Delivered", "ForeignRunError", "deliver", "main"]

_MAX_FOREIGN_FILES: Final = 100


class ForeignRunError(RuntimeError):
    """The destination contains another run."""


@dataclass
class Delivered:
    """Results of a delivery.

    Attributes:
        steps: Number of delivered steps.
        files: Number of other delivered files.
        has_end_marker: Whether the end marker was delivered.
        steps_left: Number of steps that stay, because the store has newer ones.
        files_left: Number of other files that stay for the same reason.
        reason: Why they stay; None if all is delivered.
    """

    steps: int = 0
    files: int = 0
    has_end_marker: bool = False
    steps_left: int = 0
    files_left: int = 0
    reason: str | None = None


def deliver(spool: SpoolFolder, store: Store, delivered: Delivered) -> None:
    """Store the content of a spool and remove it there; remove the empty folder.

    Raises:
        ForeignRunError: The store contains another run.
        StorageError: The store failed.
        FormatError: A file in the spool is damaged.
    """
    has_job_file = _is_run_there(store, spool.target.run_id)
    for key, data in spool.files():
        if key == JOB_FILE:  # readers look for it before any step
            if not has_job_file:
                store.put(key, data)
                delivered.files += 1
            spool.remove_file(key)
    _deliver_steps(spool, store, delivered)
    for is_last in (False, True):
        for key, data in spool.files(is_last=is_last):
            if delivered.reason is not None:
                delivered.files_left += 1
                continue
            store.put(key, data)
            spool.remove_file(key, is_last=is_last)
            delivered.files += not is_last
            delivered.has_end_marker |= is_last
    if delivered.reason is None:
        spool.remove()


def _deliver_steps(spool: SpoolFolder, store: Store, delivered: Delivered) -> None:
    newer = _NewerSteps(store, spool.target)
    previous = None
    for number in spool.steps():
        if delivered.reason is None:
            files = spool.get_step(number)
            delivered.reason = newer.objection(number, files)
        if delivered.reason is not None:
            delivered.steps_left += 1
            continue
        if previous is not None:
            files = files.with_skipped(number - previous - 1)
        files.store_in(store)
        spool.remove_step(number)
        delivered.steps += 1
        previous = number


class _NewerSteps:
    """Index files in the store from a spool's worker and run, from a step on."""

    def __init__(self, store: Store, target: SpoolTarget) -> None:
        self._store = store
        self._target = target
        self._found: Iterator[tuple[str, IndexFile]] | None = None
        self._next: tuple[str, IndexFile] | None = None

    def objection(self, number: int, files: StepFiles) -> str | None:
        """Return why a step must not be stored; None if it may be.

        Call this in the order of the steps.
        """
        key = files.index_key
        if self._found is None:
            # The greatest key that sorts before the key itself.
            self._found = self._index_files(after=key[:-1])
            self._next = next(self._found, None)
        while self._next is not None and self._next[0] < key:
            self._next = next(self._found, None)
        if self._next is None:
            return None
        there_key, there = self._next
        if there_key == key:
            ours = parse_index(files.index_data, file=key)
            return None if _content(there) == _content(ours) else f"{key} exists, saved again"
        if there.sequence is None or number < there.sequence - (there.skipped or 0):
            return None
        return f"{there_key} marks number {number} as lost, or is another step"

    def _index_files(self, after: str) -> Iterator[tuple[str, IndexFile]]:
        keys = (
            key for key in self._store.list(INDEX_PREFIX, after=after) if self._is_of_worker(key)
        )
        num_foreign = 0
        for key in keys:
            try:
                index = parse_index(self._store.get(key), file=key)
            except (FormatError, ObjectNotFoundError):
                index = None
            if index is not None and index.run == self._target.run_id:
                yield key, index
            elif (num_foreign := num_foreign + 1) >= _MAX_FOREIGN_FILES:
                return  # an older run's folder

    def _is_of_worker(self, key: str) -> bool:
        try:
            return parse_index_key(key).worker == self._target.worker
        except FormatError:
            return False


def _content(index: IndexFile) -> bytes:
    """Return the part that two files of one step share: all except the number of lost steps."""
    return replace(index, skipped=None).encode()


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run the command.

    Args:
        arguments: Command-line arguments; None: those of this process.
        out: Output stream of the report.

    Returns:
        Exit status: 0 if everything was delivered, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hook_layer.spool",
        description="Deliver data that stayed in a spool because the store was unavailable.",
    )
    parser.add_argument("folder", help="the spool, as in the log of the training")
    parser.add_argument(
        "--to", metavar="URI", help="deliver to this URI instead of the original one"
    )
    options = parser.parse_args(arguments)
    delivered = Delivered()
    problem: str | None = None
    try:
        spool = SpoolFolder.open(options.folder)
    except ObjectNotFoundError:
        print(f"{options.folder} is not a spool", file=out)
        return 1
    except (OSError, ValueError, SpoolInUseError) as error:
        print(error, file=out)
        return 1
    try:
        deliver(spool, open_store(options.to or spool.target.uri), delivered)
    except (ImportError, OSError, ValueError, ForeignRunError) as error:
        problem = str(error)
    finally:
        spool.release()
    marker = ", and the end marker" if delivered.has_end_marker else ""
    print(f"delivered {delivered.steps} steps and {delivered.files} files{marker}", file=out)
    if problem is not None:
        print(f"the rest stays in {options.folder}: {problem}", file=out)
    elif delivered.reason is not None:
        print(_left_out(delivered, options.folder), file=out)
    return 0 if problem is None and delivered.reason is None else 1


def _left_out(delivered: Delivered, folder: str) -> str:
    return (
        f"{delivered.steps_left} steps and {delivered.files_left} files are not delivered and stay "
        f"in {folder}, because training continued without them ({delivered.reason}). Deliver them "
        "to another folder with --to URI, or delete them"
    )


def _is_run_there(store: Store, run_id: str) -> bool:
    """Return whether the store has the run's `job.json`; never mix the files of two runs.

    Raises:
        ForeignRunError: The store's `job.json` belongs to another run.
    """
    found = run_in(store)
    if found is None:
        return False
    if found != run_id:
        raise ForeignRunError(
            f"{store.uri} now holds the run {found}, and these steps belong to the run "
            f"{run_id}; deliver them to another folder with --to URI"
        )
    return True


if __name__ == "__main__":
    sys.exit(main())
