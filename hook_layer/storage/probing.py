"""Whether a place can be written to, seen before anything is trained for it."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Final

from hook_layer.storage.base import open_store
from hook_layer.storage.local import LocalStore

__all__ = ["check_writable"]

_KEY_PREFIX: Final = "stepwatch-probe-"


def check_writable(uri: str | os.PathLike[str]) -> None:
    """Write a small file into a folder and remove it, with the folders that were made for it.

    A place that is no folder of this machine is left alone: a bucket may be away for a while, and
    every object in it wakes rules. Several processes may look at one folder at the same time.

    Args:
        uri: A path or the URI of a store.

    Raises:
        ValueError: The URI cannot be opened.
        StoreRefusedError: Nothing can be written there; the message says why, and what to do.
        StorageError: Nothing can be written there for now, as on a disk that is full.
    """
    store = open_store(uri)
    if not isinstance(store, LocalStore):
        return
    lineage = [store.path, *store.path.parents]
    missing = [folder for folder in lineage if not os.path.lexists(folder)]
    # Processes of different containers may have the same number, and write to the same folder.
    key = f"{_KEY_PREFIX}{secrets.token_hex(8)}"
    try:
        store.put(key, b"")
        store.delete(key)
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):  # it was not made, or somebody else has a use for it
                folder.rmdir()
