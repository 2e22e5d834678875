"""Stores for a trial's files: a protocol, and one module per kind of store."""

from __future__ import annotations

from hook_layer.storage.base import (
    ObjectNotFoundError,
    StorageError,
    Store,
    StoreRefusedError,
    open_store,
)

__all__ = ["ObjectNotFoundError", "StorageError", "Store", "StoreRefusedError", "open_store"]
