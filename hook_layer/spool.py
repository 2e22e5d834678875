"""Deliver what a training left in its spool because the store was away.

python -m hook_layer.spool FOLDER [--to URI]

Steps are stored in their order, one at a time, and removed from the spool once they are; the end
marker comes last, when nothing else is left, and then the folder is removed. What fails stays: the
command can be given again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, parse_job_file
from hook_layer.format.paths import JOB_FILE
from hook_layer.spool_folder import SpoolFolder, SpoolInUseError
from hook_layer.storage.base import ObjectNotFoundError, Store, open_store

__all__ = ["Delivered", "ForeignRunError", "deliver", "main"]


class ForeignRunError(RuntimeError):
    """Where the files belong is another run by now."""


@dataclass
class Delivered:
    """What was delivered.

    Attributes:
        steps: Number of steps.
        files: Number of other files.
        has_end_marker: Whether the end marker was among them.
    """

    steps: int = 0
    files: int = 0
    has_end_marker: bool = False


def deliver(spool: SpoolFolder, store: Store, delivered: Delivered) -> None:
    """Store what is in a spool, and remove it from there; the folder, too, when it is empty.

    Args:
        spool: The spool.
        store: Where to.
        delivered: Counts what is delivered, also if it ends early.

    Raises:
        ForeignRunError: The store holds the files of another run.
        StorageError: The store failed.
        FormatError: A file in the spool is damaged.
    """
    _check_run(store, spool.target.run_id)
    for key, data in spool.files():
        store.put(key, data)
        spool.remove_file(key)
        delivered.files += 1
    previous = None
    for number in spool.steps():
        files = spool.get_step(number)
        if previous is not None:
            files = files.with_skipped(number - previous - 1)
        if files.events is not None:
            store.put(files.event_key, files.events)
        store.put(files.index_key, files.index_data)
        spool.remove_step(number)
        delivered.steps += 1
        previous = number
    for key, data in spool.files(is_last=True):
        store.put(key, data)
        spool.remove_file(key, is_last=True)
        delivered.has_end_marker = True
    spool.remove()


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run the command.

    Args:
        arguments: Arguments of the command line; None: those of this process.
        out: Where to tell what was done.

    Returns:
        Exit status: 0 when all was delivered, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hook_layer.spool",
        description="Deliver what a training left in its spool because the store was away.",
    )
    parser.add_argument("folder", help="the spool, as the log of the training names it")
    parser.add_argument("--to", metavar="URI", help="deliver to here, not where it was meant to go")
    options = parser.parse_args(arguments)
    delivered = Delivered()
    problem: str | None = None
    try:
        spool = SpoolFolder.open(options.folder)
    except ObjectNotFoundError:
        print(f"{options.folder} is no spool", file=out)
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
    return 0 if problem is None else 1


def _check_run(store: Store, run_id: str) -> None:
    """Refuse to mix the files of two runs.

    Raises:
        ForeignRunError: The store's `job.json` is of another run.
    """
    try:
        found = parse_job_file(store.get(JOB_FILE, 0, MAX_JOB_FILE_BYTES + 1), file=JOB_FILE).run_id
    except (ObjectNotFoundError, FormatError):
        return
    if found != run_id:
        raise ForeignRunError(
            f"{store.uri} holds the run {found} by now, and these steps are of the run {run_id}; "
            "deliver them to a folder of their own by --to URI"
        )


if __name__ == "__main__":
    sys.exit(main())
