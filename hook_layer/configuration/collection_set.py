"""Collections by name: creates, finds, writes and reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import Self

from hook_layer.configuration.collections import Collection
from hook_layer.configuration.save_config import save_config_changes
from hook_layer.errors import HookConfigurationError, nearest
from hook_layer.format.collections_file import CollectionsFile, parse_collections
from hook_layer.format.errors import FormatError
from hook_layer.format.paths import collections_key
from hook_layer.storage.base import open_store

__all__ = ["CollectionSet"]


class CollectionSet:
    """The part of the original's collection manager that does not concern steps.

    Attributes:
        collections: By name.
        collection_type: Class of new collections.
        num_workers: Number of workers that write.
    """

    collections: dict[str, Collection]
    collection_type: type[Collection]
    num_workers: int

    def to_file(self) -> CollectionsFile:
        """Return the collections in the form of the file beside the tensors."""
        raise NotImplementedError

    def create_collection(self, name: str) -> None:
        """Create a collection, unless the name exists."""
        if name not in self.collections:
            self.collections[name] = self.collection_type(name)

    def get(self, name: str, create: bool = True) -> Collection:
        """Return a collection; create it if it does not exist and `create` is set.

        Raises:
            HookConfigurationError: It does not exist, and `create` is False.
        """
        if create:
            self.create_collection(name)
        elif name not in self.collections:
            raise HookConfigurationError(
                f"Collection {name} has not been created: {nearest(name, self.collections)}"
            )
        return self.collections[name]

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collections

    def add(self, arg: Collection | str) -> None:
        """Add a collection, replacing one with the same name; or create one by name."""
        if isinstance(arg, Collection):
            self.collections[arg.name] = arg
            save_config_changes.number += 1
        else:
            self.create_collection(arg)

    def get_num_workers(self) -> int:
        """Return the number of workers that write."""
        return self.num_workers

    def set_num_workers(self, num_workers: int) -> None:
        """Set the number of workers that write."""
        self.num_workers = int(num_workers)

    def update_meta(self, meta: Mapping[str, int]) -> None:
        """Set what the file says besides collections: `num_workers`.

        Raises:
            HookConfigurationError: Another key is given.
        """
        if other := set(meta) - {"num_workers"}:
            raise HookConfigurationError(f"meta={meta!r} has {other.pop()!r}; give num_workers")
        self.num_workers = int(meta.get("num_workers", self.num_workers))

    def __eq__(self, other: object) -> bool:
        """Return whether both would write the same collections."""
        if not isinstance(other, CollectionSet):
            return NotImplemented
        return self.to_file().collections == other.to_file().collections

    __hash__ = None  # type: ignore[assignment]  # it can change

    def to_json_dict(self) -> dict[str, Any]:
        """Return the content of a collections file."""
        content: dict[str, Any] = json.loads(self.to_file().encode())
        return content

    def export(self, out_dir: str | os.PathLike[str], filename: str) -> None:
        """Write the collections file of a worker.

        Args:
            out_dir: The trial's root, a folder or a URI.
            filename: Name of the file, e.g. `worker_0_collections.json`.
        """
        folder, slash, _ = collections_key("worker_0").rpartition("/")
        open_store(out_dir).put(f"{folder}{slash}{filename}", self.to_file().encode())

    @classmethod
    def load(
        cls,
        filename: str | os.PathLike[str],
        collection_class: type[Collection] = Collection,
    ) -> Self:
        """Read a collections file.

        Raises:
            HookConfigurationError: The file is invalid.
        """
        return cls.load_from_string(Path(filename).read_text(encoding="utf-8"), collection_class)

    @classmethod
    def load_from_string(cls, s: str, collection_class: type[Collection] = Collection) -> Self:
        """Parse the content of a collections file.

        Raises:
            HookConfigurationError: The content is invalid.
        """
        try:
            file = parse_collections(s.encode(), file="collections")
        except FormatError as error:
            raise HookConfigurationError(str(error)) from error
        manager = cls()
        manager.collection_type = collection_class
        for entry in file.collections.values():
            manager.add(collection_class.from_dict(vars(entry)))
        manager.set_num_workers(file.num_workers)
        return manager
