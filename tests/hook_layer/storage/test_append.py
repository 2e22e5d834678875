from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.storage.base import AppendStore, ObjectNotFoundError, StorageError
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore


def test_folders_can_append_and_others_say_that_they_cannot(tmp_path: Path) -> None:
    assert isinstance(LocalStore(tmp_path), AppendStore)
    assert not isinstance(MemoryStore(), AppendStore)


def test_append_keeps_what_is_there_or_says_that_it_is_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.append("a/b", b"one", 0)
    store.append("a/b", [b"two", b"three"], 3)
    assert store.get("a/b") == b"onetwothree"
    store.append("a/b", b"2", 3)
    assert store.get("a/b") == b"one2"
    store.append("a/b", b"new", 0)
    assert store.get("a/b") == b"new"
    with pytest.raises(StorageError, match="some of its 9 bytes are missing"):
        store.append("a/b", b"x", 9)
    with pytest.raises(ObjectNotFoundError):
        store.append("a/c", b"x", 9)
    assert store.get("a/b") == b"new"
