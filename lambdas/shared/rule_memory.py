"""Memories of rules that are too large for an item of the table, as objects beside the tensors.

An object's name contains the table, the evaluation, the version of its item and the SHA-256 of its
content. The item contains the name, so evaluators detect content that others wrote. The version
makes names unique per write: removing the object of an earlier version, or of a write that failed,
never removes another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hook_layer.storage.base import ObjectNotFoundError, StorageError, Store
from lambdas.shared.state_item import MAX_MEMORY_BYTES, MemoryTooLargeError

if TYPE_CHECKING:
    from lambdas.shared.state_item import StateKey

__all__ = ["DamagedMemoryError", "RuleMemories"]

_FOLDER: Final = "_stepwatch/memory/"
_NAME: Final = re.compile(
    rf"{_FOLDER}[0-9a-f]{{32}}/(?P<version>[0-9]{{1,18}})-(?P<sha256>[0-9a-f]{{64}})\.zlib"
)


class DamagedMemoryError(Exception):
    """The object with a memory is missing, or has changed."""


class RuleMemories:
    """The objects with memories.

    Args:
        open_store: Returns the store at a trial's root.
        table_name: The table whose items name the objects: two deployments that evaluate the same
            rule over the same run remove only their own.
    """

    def __init__(self, open_store: Callable[[str], Store], table_name: str = "") -> None:
        self._open_store = open_store
        self._table_name = table_name

    def holds(self, name: str, data: bytes) -> bool:
        """Return whether the object with this name has this content."""
        match = _NAME.fullmatch(name)
        return match is not None and match["sha256"] == hashlib.sha256(data).hexdigest()

    def put(self, key: StateKey, version: int, data: bytes) -> str:
        """Store a memory; return the object's name below the root.

        Args:
            key: Key of its state.
            version: Version of the item that will name the object.
            data: The compressed memory.

        Raises:
            MemoryTooLargeError: It exceeds the maximum; nothing was stored.
            StorageError: It could not be stored.
        """
        if len(data) > MAX_MEMORY_BYTES:
            raise MemoryTooLargeError(key, len(data), MAX_MEMORY_BYTES)
        owner = f"{self._table_name}\n{key.run}\n{key.rule}"
        folder = hashlib.sha256(owner.encode()).hexdigest()[:32]
        name = f"{_FOLDER}{folder}/{version}-{hashlib.sha256(data).hexdigest()}.zlib"
        self._open_store(key.root_uri).put(name, data)
        return name

    def get(self, key: StateKey, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            DamagedMemoryError: It is missing, or has changed.
            StorageError: The storage failed.
        """
        where = f"{key.root_uri}{name}"
        if _NAME.fullmatch(name) is None:
            raise DamagedMemoryError(f"{where} is not the name of a memory")
        try:
            data = self._open_store(key.root_uri).get(name, 0, MAX_MEMORY_BYTES + 1)
        except ObjectNotFoundError as error:
            raise DamagedMemoryError(str(error)) from error
        if not self.holds(name, data):
            raise DamagedMemoryError(f"{where} does not hold what was written there")
        return data

    def remove(self, key: StateKey, name: str) -> None:
        """Remove an object that no item names; failing does no harm."""
        with contextlib.suppress(StorageError, ValueError):
            self._open_store(key.root_uri).delete(name)
