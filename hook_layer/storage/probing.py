"""Whether a place can be written to, seen before anything is trained for it."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from hook_layer.storage.base import open_store
from hook_layer.storage.local import LocalStore

__all__ = ["check_writable"]

_KEY: Final = "stepwatch-probe"


def check_writable(uri: str | os.PathLike[str]) -> None:
    """Write a small file into a folder and remove it, with the folders that were made for it.

    A place that is no folder of this machine is left alone: a bucket may be away for a while, and
    every object in it wakes rules.

    Args:
        uri: A path or the URI of a store.

    Raises:
        ValueError: The URI cannot be opened.
        StorageError: Nothing can be written there; the message says why, and what to do.
    """
    store = open_store(uri)
    if not isinstance(store, LocalStore):
        return
    lineage = [store.path, *store.path.parents]
    missing = [folder for folder in lineage if not os.path.lexists(folder)]
    try:
        store.put(_KEY, b"")
        store.delete(_KEY)
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):  # it was not made, or somebody else has a use for it
                folder.rmdir()
