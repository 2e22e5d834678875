"""Checks before training whether a folder is writable."""

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
    """Write a small file into a folder; remove it, and all folders created for it.

    Only local folders are checked: a bucket may be unavailable for a while, and every object in it
    triggers rules. Several processes may check a folder at the same time.

    Args:
        uri: A path or the URI of a store.

    Raises:
        ValueError: The URI cannot be opened.
        StoreRefusedError: The folder is not writable; the message explains why, and the solution.
        StorageError: The folder is temporarily not writable, such as on a full disk.
    """
    store = open_store(uri)
    if not isinstance(store, LocalStore):
        return
    lineage = [store.path, *store.path.parents]
    missing = [folder for folder in lineage if not os.path.lexists(folder)]
    # Processes of different containers may have the same id, and share a folder.
    key = f"{_KEY_PREFIX}{secrets.token_hex(8)}"
    try:
        store.put(key, b"")
        store.delete(key)
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):  # it did not exist before, or others use it now
                folder.rmdir()
